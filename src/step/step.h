// SPDX-License-Identifier: Apache-2.0
// The calls of a training loop. A step gathers gradients, votes, applies updates and publishes
// parameters.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "step/take.h"

namespace zero {

/// A limit for the norm of all gradients or, if `some` is set, of the gradients of `params`.
struct Clip {
  double max_norm = 0;
  double norm_type = 2;
  bool some = false;
  std::span<const int64_t> params{};
};

Status seal_params(Call& call, Optimizer& optim);
Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads);
/// Clips gradients by their norm. Sets `*norm` to the norm before clipping. On a device, the call
/// waits for the norm unless `norm` is null.
Status clip_grad_norm(Call& call, Optimizer& optim, const Clip& clip, double* norm,
                      const Grads& grads = {});
Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads = {});
/// Begins a step. From then on its settings are fixed, and a gradient is used as soon as all ranks
/// have announced it.
Status step_begin(Call& call, Optimizer& optim, int32_t flags);
/// Takes a step. Returns ZERO_OK, or ZERO_SKIPPED if all ranks skipped the step and the host
/// already knows it.
Result<Code> step(Call& call, Optimizer& optim, const Grads& grads);
/// Drop gradients, or a step that has begun. Fail with ZERO_ERR_STATE if that step may have updated
/// parameters.
Status drop_grads(Optimizer& optim);
Status drop_begun(Optimizer& optim);

}  // namespace zero
