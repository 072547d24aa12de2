// SPDX-License-Identifier: Apache-2.0
// Adadelta: Zeiler 2012, "ADADELTA: An Adaptive Learning Rate Method".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

struct Adadelta : AllSlots<0b11> {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADADELTA;
  static constexpr const char* name = "adadelta";
  static constexpr Setting settings[] = {
      rate(1), {"rho", 0.9, Setting::closed_unit_interval}, epsilon(1e-6), decay(0), kMaximize};
  static constexpr const char* slots[] = {"square_avg", "acc_delta"};

  enum Value { lr, rho, one_minus_rho, eps, weight_decay };
  enum Flag { decays, flags };
  enum Slot { square_avg, acc_delta };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Adadelta>& in) {
    scalars.value[rho] = in["rho"];
    scalars.value[one_minus_rho] = 1 - in["rho"];
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[decays]) gradient = gradient + param * value[weight_decay];
    average_square(slot[square_avg], gradient, value[rho], value[one_minus_rho]);
    const Real delta =
        root(slot[acc_delta] + value[eps]) / root(slot[square_avg] + value[eps]) * gradient;
    average_square(slot[acc_delta], delta, value[rho], value[one_minus_rho]);
    param = param - delta * value[lr];
  }
};

}  // namespace zero::rules
