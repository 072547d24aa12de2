// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, as in torch: Sutskever et al. 2013, "On the importance
// of initialization and momentum in deep learning".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

/// The first gradient enters the buffer without dampening.
struct Sgd {
  static constexpr int32_t number = ZERO_OPTIMIZER_SGD;
  static constexpr const char* name = "sgd";
  static constexpr Setting settings[] = {
      rate(1e-3), kMomentum, {"dampening", 0, Setting::any_finite}, decay(0), kNesterov, kMaximize};
  static constexpr const char* slots[] = {"momentum_buffer"};

  enum Value { lr, momentum, one_minus_dampening, weight_decay };
  // is_first: the buffer holds nothing yet.
  enum Flag { decays, has_momentum, is_first, nesterov, flags };
  enum Slot { momentum_buffer };

  ZERO_ELEMENT static constexpr unsigned used(const bool* flag) { return flag[has_momentum]; }

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Sgd>& in) {
    scalars.value[one_minus_dampening] = 1 - in["dampening"];
    scalars.flag[is_first] = in.first(momentum_buffer);
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[decays]) gradient = gradient + param * value[weight_decay];
    if (flag[has_momentum]) {
      Real& buffer = slot[momentum_buffer];
      buffer = flag[is_first] ? gradient
                              : buffer * value[momentum] + gradient * value[one_minus_dampening];
      gradient = flag[nesterov] ? gradient + buffer * value[momentum] : buffer;
    }
    param = param - gradient * value[lr];
  }
};

}  // namespace zero::rules
