// SPDX-License-Identifier: Apache-2.0
// Adan: Xie et al. 2022, "Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep
// Models", without restarts. As in its authors' code, a beta is the weight that an average keeps,
// and averages are bias-corrected.
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// The decay is proximal: the updated parameter is divided by 1 + lr * weight_decay.
struct Adan : AllSlots<0b1111>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADAN;
  static constexpr const char* name = "adan";
  static constexpr Setting settings[] = {rate(1e-3),
                                         beta("beta1", 0.98),
                                         beta("beta2", 0.92),
                                         beta("beta3", 0.99),
                                         epsilon(1e-8),
                                         decay(0),
                                         kMaximize};
  static constexpr const char* slots[] = {"exp_avg", "exp_avg_diff", "exp_avg_sq", "prev_grad"};

  enum Value {
    beta3 = kMoments,
    one_minus_beta3,
    step_size,   // lr / (1 - beta1^step)
    diff_size,   // lr * beta2 / (1 - beta2^step)
    root_scale,  // 1 / sqrt(1 - beta3^step)
    eps,
    shrinks  // 1 / (1 + lr * weight_decay)
  };
  enum Flag { is_first, flags };  // is_first: there is no gradient of an earlier step
  enum Slot { exp_avg, exp_avg_diff, exp_avg_sq, prev_grad };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Adan>& in) {
    scalars.value[beta3] = in["beta3"];
    scalars.value[one_minus_beta3] = 1 - in["beta3"];
    scalars.value[step_size] = in["lr"] / (1 - power(in["beta1"], in.step));
    scalars.value[diff_size] = in["lr"] * in["beta2"] / (1 - power(in["beta2"], in.step));
    scalars.value[root_scale] = 1 / root(1 - power(in["beta3"], in.step));
    scalars.value[shrinks] = 1 / (1 + in["lr"] * in["weight_decay"]);
    scalars.flag[is_first] = in.first(prev_grad);
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    const Real diff = flag[is_first] ? Real{0} : gradient - slot[prev_grad];
    const Real ahead = gradient + diff * value[beta2];
    average(slot[exp_avg], gradient, value[beta1], value[one_minus_beta1]);
    average(slot[exp_avg_diff], diff, value[beta2], value[one_minus_beta2]);
    average_square(slot[exp_avg_sq], ahead, value[beta3], value[one_minus_beta3]);
    slot[prev_grad] = gradient;
    const Real step = slot[exp_avg] * value[step_size] + slot[exp_avg_diff] * value[diff_size];
    const Real denominator = root(slot[exp_avg_sq]) * value[root_scale] + value[eps];
    param = (param - step / denominator) * value[shrinks];
  }
};

}  // namespace zero::rules
