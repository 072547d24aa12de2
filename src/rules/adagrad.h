// SPDX-License-Identifier: Apache-2.0
// Adagrad: Duchi, Hazan and Singer 2011, "Adaptive Subgradient Methods for Online Learning and
// Stochastic Optimization".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

struct Adagrad : AllSlots<0b1> {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADAGRAD;
  static constexpr const char* name = "adagrad";
  static constexpr Setting settings[] = {
      rate(1e-2),     {"lr_decay", 0, Setting::positive_or_zero},
      decay(0),       {"initial_accumulator_value", 0, Setting::positive_or_zero},
      epsilon(1e-10), kMaximize};
  static constexpr const char* slots[] = {"sum"};

  enum Value { step_size, eps, weight_decay, initial };  // step_size: lr / (1 + (step-1) lr_decay)
  enum Flag { decays, is_first, flags };                 // is_first: the sum holds nothing yet
  enum Slot { sum };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Adagrad>& in) {
    scalars.value[step_size] = in["lr"] / (1 + static_cast<double>(in.step - 1) * in["lr_decay"]);
    scalars.value[initial] = in["initial_accumulator_value"];
    scalars.flag[is_first] = in.first(sum);
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[decays]) gradient = gradient + param * value[weight_decay];
    slot[sum] = (flag[is_first] ? value[initial] : slot[sum]) + gradient * gradient;
    param = param - (gradient * value[step_size]) / (root(slot[sum]) + value[eps]);
  }
};

}  // namespace zero::rules
