// SPDX-License-Identifier: Apache-2.0
// LAMB: You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// The step of LAMB needs the norm of a tensor's direction, so elements are updated by two
/// functions: update() and stepped().
struct Lamb : AllSlots<0b11>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_LAMB;
  static constexpr const char* name = "lamb";
  static constexpr Setting settings[] = {rate(1e-3),  kBeta1,       kBeta2,   epsilon(1e-6),
                                         decay(0.01), kAlwaysAdapt, kMaximize};
  static constexpr const char* slots[] = {"exp_avg", "exp_avg_sq"};

  enum Value {
    avg_scale = kMoments,  // 1 / (1 - beta1^step)
    root_scale,            // 1 / sqrt(1 - beta2^step)
    eps,
    weight_decay,
    lr  // later multiplied by the trust ratio
  };
  enum Flag { decays, flags };
  enum Slot { exp_avg, exp_avg_sq };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Lamb>& in) {
    scalars.value[avg_scale] = 1 / (1 - power(in["beta1"], in.step));
    scalars.value[root_scale] = 1 / root(1 - power(in["beta2"], in.step));
  }

  static double ratio(std::span<const double> settings, double param, double direction) {
    const In<Lamb> in({.settings = settings.data()});
    if (in["weight_decay"] == 0 && in["always_adapt"] == 0) return 1;
    return param == 0 || direction == 0 ? 1 : param / direction;
  }
  static constexpr Trust trust = {ratio, lr, true};

  /// Replaces the parameter with its direction: Adam's step with decoupled decay, at a learning
  /// rate of 1.
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    average_moments(slot, gradient, value);
    const Real denominator = root(slot[exp_avg_sq]) * value[root_scale] + value[eps];
    const Real direction = (slot[exp_avg] * value[avg_scale]) / denominator;
    param = flag[decays] ? direction + param * value[weight_decay] : direction;
  }

  template <class Real>
  ZERO_ELEMENT static Real stepped(Real param, Real direction, const Real* value) {
    return param - direction * value[lr];
  }
};

}  // namespace zero::rules
