// SPDX-License-Identifier: Apache-2.0
// Lion: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// Lion steps by the sign of a mix of average and gradient. NaN stays NaN. The decay is decoupled.
struct Lion : AllSlots<0b1>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_LION;
  static constexpr const char* name = "lion";
  static constexpr Setting settings[] = {rate(1e-4), kBeta1, beta("beta2", 0.99), decay(0),
                                         kMaximize};
  static constexpr const char* slots[] = {"exp_avg"};

  enum Value { lr = kMoments, shrinks };  // shrinks: 1 - lr * weight_decay
  enum Slot { exp_avg };
  static constexpr int flags = 0;

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Lion>& in) {
    scalars.value[shrinks] = 1 - in["lr"] * in["weight_decay"];
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool*) {
    const Real mix = slot[exp_avg] * value[beta1] + gradient * value[one_minus_beta1];
    const Real sign = mix > 0 ? Real{1} : mix < 0 ? -Real{1} : mix;
    param = param * value[shrinks] - sign * value[lr];
    average(slot[exp_avg], gradient, value[beta2], value[one_minus_beta2]);
  }
};

}  // namespace zero::rules
