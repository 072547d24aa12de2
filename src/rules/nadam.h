// SPDX-License-Identifier: Apache-2.0
// NAdam: Dozat 2016, "Incorporating Nesterov Momentum into Adam".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

struct Nadam : AllSlots<0b11>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_NADAM;
  static constexpr const char* name = "nadam";
  static constexpr Setting settings[] = {
      rate(2e-3),    kBeta1,          kBeta2,
      epsilon(1e-8), rules::decay(0), {"momentum_decay", 4e-3, Setting::positive_or_zero},
      kDecoupled,    kMaximize};
  static constexpr const char* slots[] = {"exp_avg", "exp_avg_sq"};

  enum Value {
    grad_size = kMoments,
    avg_size,
    root_scale,  // 1 / sqrt(1 - beta2^step)
    eps,
    decay
  };
  enum Flag { decays, flags };
  enum Slot { exp_avg, exp_avg_sq };

  /// Returns the momentum of a step, which grows towards beta1.
  ZERO_HOST_DEVICE static double momentum(const In<Nadam>& in, int64_t step) {
    constexpr double kLog096 = -0.040821994520255166;
    const double exponent = static_cast<double>(step) * in["momentum_decay"];
    return in["beta1"] * (1 - 0.5 * exp_of_negative(kLog096 * exponent));
  }

  ZERO_HOST_DEVICE static double next_product(const StepContext& context) {
    return context.product * momentum(In<Nadam>(context), context.step);
  }

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Nadam>& in) {
    const double mu = momentum(in, in.step);
    const double next_mu = momentum(in, in.step + 1);
    const double product = next_product(in);
    scalars.value[grad_size] = in["lr"] * (1 - mu) / (1 - product);
    scalars.value[avg_size] = in["lr"] * next_mu / (1 - product * next_mu);
    scalars.value[root_scale] = 1 / root(1 - power(in["beta2"], in.step));
    prepare_decay_of_either_kind(scalars, in);
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    const Real old = flag[decays] ? param : param * value[decay];
    if (flag[decays]) gradient = gradient + param * value[decay];
    average_moments(slot, gradient, value);
    const Real denominator = root(slot[exp_avg_sq]) * value[root_scale] + value[eps];
    param = old - (gradient * value[grad_size] + slot[exp_avg] * value[avg_size]) / denominator;
  }
};

}  // namespace zero::rules
