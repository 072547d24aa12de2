// SPDX-License-Identifier: Apache-2.0
// Adamax: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", section 7.1.
#pragma once

#include "rules/parts.h"

namespace zero::rules {

struct Adamax : AllSlots<0b11>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADAMAX;
  static constexpr const char* name = "adamax";
  static constexpr Setting settings[] = {rate(2e-3),    kBeta1,   kBeta2,
                                         epsilon(1e-8), decay(0), kMaximize};
  static constexpr const char* slots[] = {"exp_avg", "exp_inf"};

  enum Value { step_size = kMoments, eps, weight_decay };
  enum Flag { decays, flags };
  enum Slot { exp_avg, exp_inf };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Adamax>& in) {
    scalars.value[step_size] = in["lr"] / (1 - power(in["beta1"], in.step));
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[decays]) gradient = gradient + param * value[weight_decay];
    average(slot[exp_avg], gradient, value[beta1], value[one_minus_beta1]);
    slot[exp_inf] = maximum(slot[exp_inf] * value[beta2], magnitude(gradient) + value[eps]);
    param = param - (slot[exp_avg] * value[step_size]) / slot[exp_inf];
  }
};

}  // namespace zero::rules
