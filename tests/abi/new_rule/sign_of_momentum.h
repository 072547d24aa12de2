// SPDX-License-Identifier: Apache-2.0
// Signum: Bernstein et al. 2018, "signSGD: Compressed Optimisation for Non-Convex Problems".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// The sign of the momentum steps; a NaN has no sign and stays one.
struct SignOfMomentum : AllSlots<0b1> {
  static constexpr int32_t number = ZERO_OPTIMIZER_SIGN_OF_MOMENTUM;
  static constexpr const char* name = "sign_of_momentum";
  static constexpr Setting settings[] = {rate(1e-4), beta("momentum", 0.9), kMaximize};
  static constexpr const char* slots[] = {"momentum_buffer"};

  enum Value { lr, momentum, one_minus_momentum };
  enum Slot { momentum_buffer };
  static constexpr int flags = 0;

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<SignOfMomentum>& in) {
    scalars.value[one_minus_momentum] = 1 - in["momentum"];
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool*) {
    average(slot[momentum_buffer], gradient, value[momentum], value[one_minus_momentum]);
    const Real mean = slot[momentum_buffer];
    const Real sign = mean > 0 ? Real{1} : mean < 0 ? -Real{1} : mean;
    param = param - sign * value[lr];
  }
};

}  // namespace zero::rules
