// SPDX-License-Identifier: Apache-2.0
// Rprop: Riedmiller and Braun 1993, "A Direct Adaptive Method for Faster Backpropagation Learning:
// The RPROP Algorithm".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// If the gradient changes its sign, the step size shrinks and no step is taken. As in torch, a NaN
/// has sign 0 and changes nothing.
struct Rprop : AllSlots<0b11> {
  static constexpr int32_t number = ZERO_OPTIMIZER_RPROP;
  static constexpr const char* name = "rprop";
  static constexpr Setting settings[] = {rate(1e-2),
                                         {"eta_minus", 0.5, Setting::open_unit_interval},
                                         {"eta_plus", 1.2, Setting::above_one},
                                         {"step_size_min", 1e-6, Setting::positive_or_zero},
                                         {"step_size_max", 50, Setting::positive_or_zero},
                                         kMaximize};
  static constexpr const char* slots[] = {"prev", "step_size"};

  enum Value { eta_minus, eta_plus, step_size_min, step_size_max, initial };
  enum Flag { is_first, flags };  // is_first: no slot holds anything yet
  enum Slot { prev, step_size };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Rprop>& in) {
    scalars.value[eta_minus] = in["eta_minus"];
    scalars.value[eta_plus] = in["eta_plus"];
    scalars.value[step_size_min] = in["step_size_min"];
    scalars.value[step_size_max] = in["step_size_max"];
    scalars.value[initial] = in["lr"];
    scalars.flag[is_first] = in.first(step_size);
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    const Real same = flag[is_first] ? Real{0} : gradient * slot[prev];
    const Real eta = same > 0 ? value[eta_plus] : same < 0 ? value[eta_minus] : Real{1};
    const Real wanted = (flag[is_first] ? value[initial] : slot[step_size]) * eta;
    const Real raised = wanted < value[step_size_min] ? value[step_size_min] : wanted;
    slot[step_size] = raised > value[step_size_max] ? value[step_size_max] : raised;
    slot[prev] = same < 0 ? Real{0} : gradient;
    const Real sign = slot[prev] > 0 ? Real{1} : slot[prev] < 0 ? -Real{1} : Real{0};
    param = param - sign * slot[step_size];
  }
};

}  // namespace zero::rules
