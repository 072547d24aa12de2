// SPDX-License-Identifier: Apache-2.0
// Adam: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", with AMSGrad: Reddi et
// al. 2018, "On the Convergence of Adam and Beyond".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// The parts that Adam and AdamW share: both moments and the step along them.
struct AdamStep : Moments {
  enum Value {
    step_size = kMoments,  // lr / (1 - beta1^step)
    root_scale,            // 1 / sqrt(1 - beta2^step)
    eps,
    kStepValues
  };
  enum StepFlag { amsgrad, kStepFlags };
  enum Slot { exp_avg, exp_avg_sq, max_exp_avg_sq };
  static constexpr const char* slots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  static constexpr Setting kAmsgrad = {"amsgrad", 0, Setting::zero_or_one, true};

  ZERO_ELEMENT static constexpr unsigned used(const bool* flag) {
    return flag[amsgrad] ? 0b111 : 0b011;
  }

  template <class Of>
  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Of>& in) {
    scalars.value[step_size] = in["lr"] / (1 - power(in["beta1"], in.step));
    scalars.value[root_scale] = 1 / root(1 - power(in["beta2"], in.step));
    scalars.flag[amsgrad] = in["amsgrad"] != 0;
  }

  /// Returns the parameter after its step. `largest` means amsgrad. It is a template parameter,
  /// because a device needs fewer registers if that branch encloses all of this.
  template <bool largest, class Real>
  ZERO_ELEMENT static Real stepped(Real param, Real gradient, Real* slot, const Real* value) {
    average_moments(slot, gradient, value);
    Real second = slot[exp_avg_sq];
    if (largest) second = slot[max_exp_avg_sq] = maximum(slot[max_exp_avg_sq], second);
    const Real denominator = root(second) * value[root_scale] + value[eps];
    return param - (slot[exp_avg] * value[step_size]) / denominator;
  }
};

/// Adam adds decay to the gradient. Without decay it must add nothing, because 0 * inf is NaN.
struct Adam : AdamStep {
  static constexpr int32_t number = ZERO_OPTIMIZER_ADAM;
  static constexpr const char* name = "adam";
  static constexpr Setting settings[] = {rate(1e-3), kBeta1,   kBeta2,   epsilon(1e-8),
                                         decay(0),   kAmsgrad, kMaximize};
  enum { weight_decay = kStepValues };
  enum Flag { decays = kStepFlags, flags };

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    flag[amsgrad] ? update_by<true>(param, gradient, slot, value, flag[decays])
                  : update_by<false>(param, gradient, slot, value, flag[decays]);
  }

 private:
  template <bool largest, class Real>
  ZERO_ELEMENT static void update_by(Real& param, Real gradient, Real* slot, const Real* value,
                                     bool decays) {
    if (decays) gradient = gradient + param * value[weight_decay];
    param = stepped<largest>(param, gradient, slot, value);
  }
};

}  // namespace zero::rules
