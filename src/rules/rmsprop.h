// SPDX-License-Identifier: Apache-2.0
// RMSprop: Hinton 2012, lecture 6e of "Neural Networks for Machine Learning"; centered: Graves
// 2013, "Generating Sequences With Recurrent Neural Networks".
#pragma once

#include "rules/parts.h"

namespace zero::rules {

struct Rmsprop {
  static constexpr int32_t number = ZERO_OPTIMIZER_RMSPROP;
  static constexpr const char* name = "rmsprop";
  static constexpr Setting settings[] = {
      rate(1e-2), {"alpha", 0.99, Setting::closed_unit_interval}, epsilon(1e-8), decay(0),
      kMomentum,  {"centered", 0, Setting::zero_or_one, true},    kMaximize};
  static constexpr const char* slots[] = {"square_avg", "momentum_buffer", "grad_avg"};

  enum Value { lr, alpha, one_minus_alpha, eps, weight_decay, momentum };
  enum Flag { decays, has_momentum, centered, flags };
  enum Slot { square_avg, momentum_buffer, grad_avg };

  ZERO_ELEMENT static constexpr unsigned used(const bool* flag) {
    return 0b001u | (flag[has_momentum] ? 0b010u : 0u) | (flag[centered] ? 0b100u : 0u);
  }

  ZERO_HOST_DEVICE static void prepare(Scalars& scalars, const In<Rmsprop>& in) {
    scalars.value[alpha] = in["alpha"];
    scalars.value[one_minus_alpha] = 1 - in["alpha"];
    scalars.flag[centered] = in["centered"] != 0;
  }

  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[decays]) gradient = gradient + param * value[weight_decay];
    if (flag[centered]) {
      flag[has_momentum] ? update_by<true, true>(param, gradient, slot, value)
                         : update_by<true, false>(param, gradient, slot, value);
    } else {
      flag[has_momentum] ? update_by<false, true>(param, gradient, slot, value)
                         : update_by<false, false>(param, gradient, slot, value);
    }
  }

 private:
  /// The flags are template parameters, because a device needs fewer registers if the branches
  /// enclose all of this.
  template <bool centered, bool has_momentum, class Real>
  ZERO_ELEMENT static void update_by(Real& param, Real gradient, Real* slot, const Real* value) {
    average_square(slot[square_avg], gradient, value[alpha], value[one_minus_alpha]);
    Real second = slot[square_avg];
    if (centered) {
      average(slot[grad_avg], gradient, value[alpha], value[one_minus_alpha]);
      second = second - slot[grad_avg] * slot[grad_avg];
    }
    const Real denominator = root(second) + value[eps];
    if (has_momentum) {
      slot[momentum_buffer] = slot[momentum_buffer] * value[momentum] + gradient / denominator;
      param = param - slot[momentum_buffer] * value[lr];
    } else {
      param = param - (gradient * value[lr]) / denominator;
    }
  }
};

}  // namespace zero::rules
