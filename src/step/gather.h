// SPDX-License-Identifier: Apache-2.0
// The first half of a step, and of every call that needs reduced gradients: enter, get ready,
// gather, vote.
#pragma once

#include <optional>
#include <string>

#include "step/memory.h"
#include "step/step.h"

namespace zero {

/// Enter a call that needs reduced gradients. `keeps` and `sums`: see Entry. `local`: this rank's
/// own reason to refuse. `args`: lines that must be the same on every rank.
Status enter_with_grads(Call& call, Optimizer& optim, const Grads& grads, bool keeps, bool sums,
                        Status local, std::string args);

/// Whatever may fail on one rank alone, before any gradient is touched. `updates`: the call also
/// updates, and uses the sums itself.
Status get_ready(Call& call, Optimizer& optim, bool updates, bool reduces);

/// Sum gradients to their owners and agree on what was found: the norm for this p (0: none), and
/// what is not finite.
Status gather(Call& call, Optimizer& optim, const Grads& grads, double p);

/// Puts things back as they were, unless they have come to stay: a call that would have added to
/// sums and failed leaves those that it found.
class Rollback {
 public:
  explicit Rollback(Optimizer& optim) : memory_(step_memory(optim)) {
    if (optim.phase == Phase::reduced) before_ = memory_;
  }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() {
    if (before_) static_cast<StepLayout&>(memory_) = std::move(*before_);
  }
  void keep() { before_.reset(); }

 private:
  StepMemory& memory_;
  std::optional<StepLayout> before_;
};

}  // namespace zero
