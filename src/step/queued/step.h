// SPDX-License-Identifier: Apache-2.0
// The training loop's calls on a device with streams: entered and agreed upon like on the host,
// then queued. What the ranks find in the gradients is decided on the device.
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"
#include "step/step.h"

namespace zero::queued {

/// ZERO_ERR_UNSUPPORTED for what an optimizer on a device cannot be told to do.
Status check_options(const Comm& comm, const OptimizerOptions& options);

Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads);
/// Blocks only if `norm` is not null.
Status clip_grad_norm(Call& call, Optimizer& optim, double max_norm, double norm_type, double* norm,
                      const Grads& grads);
Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads);
Status step(Call& call, Optimizer& optim, const Grads& grads);

/// Make the parameters, as they stand, the masters of this rank's share from `first_section` on,
/// and wait for it.
Status take_masters(Optimizer& optim, size_t first_section);
/// Round the parameters of this rank's share to what they share, and wait for it.
Status round_share(Optimizer& optim);

// Behind what the call's stream holds, and done when they return.

/// Every parameter of `root` to all ranks.
Status broadcast_params(Call& call, Optimizer& optim, int32_t root);
/// Every buffer of `root` to all ranks.
Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root);
/// What each rank owns of the parameters to all ranks.
Status share_params(Call& call, Optimizer& optim);

}  // namespace zero::queued
