// SPDX-License-Identifier: Apache-2.0
// AdamW: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
#pragma once

#include "rules/adam.h"

namespace zero::rules {

/// The decay of AdamW is decoupled: it shrinks the parameter, and is not added to the gradient.
struct Adamw : AdamStep {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADAMW;
  static constexpr const char* name = "adamw";
  static constexpr Setting settings[] = {rate(1e-3),  kBeta1,   kBeta2,   epsilon(1e-8),
                                         decay(0.01), kAmsgrad, kMaximize};
  enum { shrinks = kStepValues };  // 1 - lr * weight_decay
  static constexpr int flags = kStepFlags;

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Adamw>& in) {
    AdamStep::prepare(scalars, in);
    scalars.value[shrinks] = 1 - in["lr"] * in["weight_decay"];
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    param = param * value[shrinks];
    param = flag[amsgrad] ? stepped<true>(param, gradient, slot, value)
                          : stepped<false>(param, gradient, slot, value);
  }
};

}  // namespace zero::rules
