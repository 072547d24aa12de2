// SPDX-License-Identifier: Apache-2.0
// LARS: You, Gitman and Ginsburg 2017, "Large Batch Training of Convolutional Networks".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// LARS is SGD that multiplies everything that enters the buffer by the trust ratio.
struct Lars {
  static constexpr int32_t number = ZERO_OPTIMIZER_LARS;
  static constexpr const char* name = "lars";
  static constexpr Setting settings[] = {rate(1),
                                         kMomentum,
                                         decay(0),
                                         kNesterov,
                                         {"trust_coefficient", 1e-3, Setting::positive_or_zero},
                                         epsilon(1e-8),
                                         kAlwaysAdapt,
                                         kMaximize};
  static constexpr const char* slots[] = {"momentum_buffer"};

  enum Value { lr, momentum, weight_decay, trusted };  // trusted: 1, later the ratio
  // is_first: the buffer holds nothing yet.
  enum Flag { decays, has_momentum, is_first, nesterov, flags };
  enum Slot { momentum_buffer };

  ZERO_ELEMENT static constexpr unsigned used(const bool* flag) { return flag[has_momentum]; }

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Lars>& in) {
    scalars.value[trusted] = 1;
    scalars.flag[is_first] = in.first(momentum_buffer);
  }

  static double ratio(std::span<const double> settings, double param, double gradient) {
    const In<Lars> in({.settings = settings.data()});
    if (in["weight_decay"] == 0 && in["always_adapt"] == 0) return 1;
    if (param == 0 || gradient == 0) return 1;
    return in["trust_coefficient"] * param / (gradient + in["weight_decay"] * param + in["eps"]);
  }
  static constexpr Trust trust = {ratio, trusted, false};

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[decays]) gradient = gradient + param * value[weight_decay];
    gradient = gradient * value[trusted];
    if (flag[has_momentum]) {
      Real& buffer = slot[momentum_buffer];
      buffer = flag[is_first] ? gradient : buffer * value[momentum] + gradient;
      gradient = flag[nesterov] ? gradient + buffer * value[momentum] : buffer;
    }
    param = param - gradient * value[lr];
  }
};

}  // namespace zero::rules
