// SPDX-License-Identifier: Apache-2.0
// AdEMAMix: Pagliardini, Ablin and Grangier 2024, "The AdEMAMix Optimizer: Better, Faster, Older".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// AdEMAMix is AdamW that also adds `alpha` times a slow average of gradients, without bias
/// correction. The weight of that average grows to `alpha` over alpha_warmup steps, and its beta
/// grows to `beta3` over beta3_warmup steps.
struct Ademamix : AllSlots<0b111>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADEMAMIX;
  static constexpr const char* name = "ademamix";
  static constexpr Setting settings[] = {rate(1e-3),
                                         kBeta1,
                                         kBeta2,
                                         beta("beta3", 0.9999),
                                         {"alpha", 5, Setting::positive_or_zero},
                                         {"alpha_warmup", 0, Setting::positive_or_zero},
                                         {"beta3_warmup", 0, Setting::positive_or_zero},
                                         epsilon(1e-8),
                                         decay(0),
                                         kMaximize};
  static constexpr const char* slots[] = {"exp_avg", "exp_avg_sq", "exp_avg_slow"};

  enum Value {
    beta3 = kMoments,
    one_minus_beta3,
    step_size,   // lr / (1 - beta1^step)
    slow_size,   // lr * alpha
    root_scale,  // 1 / sqrt(1 - beta2^step)
    eps,
    shrinks  // 1 - lr * weight_decay
  };
  enum Slot { exp_avg, exp_avg_sq, exp_avg_slow };
  static constexpr int flags = 0;

  /// Returns the completed fraction of a warm-up of `steps` steps.
  ZERO_HOST_DEVICE static double share(const In<Ademamix>& in, double steps) {
    const double step = static_cast<double>(in.step);
    return step < steps ? step / steps : 1;
  }

  /// Returns the beta of a step by the paper's schedule, which begins at beta1. The half-life grows
  /// by the same amount in each step, so 1/log(beta) changes linearly from 1/log(beta1) to
  /// 1/log(beta3).
  ZERO_HOST_DEVICE static double slow_beta(const In<Ademamix>& in) {
    const double part = share(in, in["beta3_warmup"]);
    const double end = in["beta3"];
    if (part == 1 || end == 0) return end;
    const double start = in["beta1"] == 0 ? 0 : 1 / log_of_less(in["beta1"]);
    const double now = exp_of_negative(1 / ((1 - part) * start + part / log_of_less(end)));
    return now < end ? now : end;
  }

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Ademamix>& in) {
    scalars.value[beta3] = slow_beta(in);
    scalars.value[one_minus_beta3] = 1 - scalars.value[beta3];
    scalars.value[step_size] = in["lr"] / (1 - power(in["beta1"], in.step));
    scalars.value[slow_size] = in["lr"] * (in["alpha"] * share(in, in["alpha_warmup"]));
    scalars.value[root_scale] = 1 / root(1 - power(in["beta2"], in.step));
    scalars.value[shrinks] = 1 - in["lr"] * in["weight_decay"];
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool*) {
    average_moments(slot, gradient, value);
    average(slot[exp_avg_slow], gradient, value[beta3], value[one_minus_beta3]);
    const Real step = slot[exp_avg] * value[step_size] + slot[exp_avg_slow] * value[slow_size];
    const Real denominator = root(slot[exp_avg_sq]) * value[root_scale] + value[eps];
    param = param * value[shrinks] - step / denominator;
  }
};

}  // namespace zero::rules
