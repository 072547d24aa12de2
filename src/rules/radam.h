// SPDX-License-Identifier: Apache-2.0
// RAdam: Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// RAdam leaves out the second moment while its variance is unknown (not `rectified`).
struct Radam : AllSlots<0b11>, Moments {
  static constexpr int32_t number = ZERO_OPTIMIZER_RADAM;
  static constexpr const char* name = "radam";
  static constexpr Setting settings[] = {rate(1e-3),      kBeta1,     kBeta2,   epsilon(1e-8),
                                         rules::decay(0), kDecoupled, kMaximize};
  static constexpr const char* slots[] = {"exp_avg", "exp_avg_sq"};

  enum Value {
    step_size = kMoments,  // lr / (1 - beta1^step); if rectified, times further factors
    eps,
    decay
  };
  enum Flag { decays, rectified, flags };
  enum Slot { exp_avg, exp_avg_sq };

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Radam>& in) {
    const double power2 = power(in["beta2"], in.step);
    const double correction2 = 1 - power2;
    // The effective number of values in the second moment: in the limit, and in this step.
    const double rho_end = 2 / (1 - in["beta2"]) - 1;
    const double rho = rho_end - 2 * static_cast<double>(in.step) * power2 / correction2;
    scalars.value[step_size] = in["lr"] / (1 - power(in["beta1"], in.step));
    scalars.flag[rectified] = rho > 5;
    if (scalars.flag[rectified]) {
      const double rectification =
          root((rho - 4) * (rho - 2) * rho_end / ((rho_end - 4) * (rho_end - 2) * rho));
      scalars.value[step_size] *= root(correction2) * rectification;
    }
    prepare_decay_of_either_kind(scalars, in);
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    const Real old = flag[decays] ? param : param * value[decay];
    if (flag[decays]) gradient = gradient + param * value[decay];
    average_moments(slot, gradient, value);
    const Real step = slot[exp_avg] * value[step_size];
    param = old - (flag[rectified] ? step / (root(slot[exp_avg_sq]) + value[eps]) : step);
  }
};

}  // namespace zero::rules
