// SPDX-License-Identifier: Apache-2.0
// The training loop's calls: gather, vote, apply, publish.
#pragma once

#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "step/take.h"

namespace zero {

/// A limit of the norm of all gradients or, with `some`, of those of the listed parameters.
struct Clip {
  double max_norm = 0;
  double norm_type = 2;
  bool some = false;
  std::span<const int64_t> params{};
};

Status seal_params(Call& call, Optimizer& optim);
Status reduce_grads(Call& call, Optimizer& optim, const Grads& grads);
/// Clips by the norm. `norm` gets the norm before that; on a device the call waits for it, unless
/// `norm` is null.
Status clip_grad_norm(Call& call, Optimizer& optim, const Clip& clip, double* norm,
                      const Grads& grads = {});
Status clip_grad_value(Call& call, Optimizer& optim, double max_value, const Grads& grads = {});
/// Begins a step: its settings are fixed, and gradients that all ranks announce are used at once.
Status step_begin(Call& call, Optimizer& optim, int32_t flags);
/// Returns ZERO_OK, or ZERO_SKIPPED if all ranks skipped the step and the host knows that by now.
Result<Code> step(Call& call, Optimizer& optim, const Grads& grads);
/// Fails with ZERO_ERR_STATE if a step has begun that may have made updates.
Status drop_grads(Optimizer& optim);
Status drop_begun(Optimizer& optim);

}  // namespace zero
