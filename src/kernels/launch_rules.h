// SPDX-License-Identifier: Apache-2.0
// Rules by ZERO_OPTIMIZER_*, for launches: flags are looked at where an element is updated, as all
// elements of a tile have the same ones.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/rules.h"
#include "zero.h"

namespace zero::launch {

// A pointer that is null or not would keep its slot in memory, so there is a branch instead.

/// A rule has `slots`, those it may use, as bits; used(), which of them its flags ask for; and
/// update(), which works on copies of one element's values.
template <int32_t optimizer>
struct RuleOf;

template <unsigned all>
struct AllSlots {
  static constexpr unsigned slots = all;
  ZERO_ELEMENT static unsigned used(const bool*) { return all; }
};

/// By one buffer, with momentum only.
struct MomentumSlot {
  static constexpr unsigned slots = 0b1;
  ZERO_ELEMENT static unsigned used(const bool* flag) {
    static_assert(int{rules::Sgd::has_momentum} == rules::Lars::has_momentum);
    return flag[rules::Sgd::has_momentum] ? 0b1 : 0b0;
  }
};

struct AdamSlots {
  static constexpr unsigned slots = 0b111;
  ZERO_ELEMENT static unsigned used(const bool* flag) {
    return flag[rules::Adam::amsgrad] ? 0b111 : 0b011;
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_ADAMW> : AdamSlots {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    if (flag[rules::Adam::amsgrad]) {
      rules::adamw(param, gradient, slot[0], slot[1], &slot[2], value);
    } else {
      rules::adamw<Real>(param, gradient, slot[0], slot[1], nullptr, value);
    }
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_ADAM> : AdamSlots {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    const bool decays = flag[rules::Adam::decays];
    if (flag[rules::Adam::amsgrad]) {
      rules::adam(param, gradient, slot[0], slot[1], &slot[2], value, decays);
    } else {
      rules::adam<Real>(param, gradient, slot[0], slot[1], nullptr, value, decays);
    }
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_SGD> : MomentumSlot {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    using rules::Sgd;
    const bool decays = flag[Sgd::decays], first = flag[Sgd::first];
    if (flag[Sgd::has_momentum]) {
      rules::sgd(param, gradient, &slot[0], value, decays, first, flag[Sgd::nesterov]);
    } else {
      rules::sgd<Real>(param, gradient, nullptr, value, decays, first, flag[Sgd::nesterov]);
    }
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_RMSPROP> {
  static constexpr unsigned slots = 0b111;
  ZERO_ELEMENT static unsigned used(const bool* flag) {
    return 0b001u | (flag[rules::Rmsprop::has_momentum] ? 0b010u : 0u) |
           (flag[rules::Rmsprop::centered] ? 0b100u : 0u);
  }
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    using rules::Rmsprop;
    const bool decays = flag[Rmsprop::decays];
    const auto with = [&](Real* buffer, Real* grad_avg) {
      rules::rmsprop(param, gradient, slot[0], buffer, grad_avg, value, decays);
    };
    if (flag[Rmsprop::centered]) {
      flag[Rmsprop::has_momentum] ? with(&slot[1], &slot[2]) : with(nullptr, &slot[2]);
    } else {
      flag[Rmsprop::has_momentum] ? with(&slot[1], nullptr) : with(nullptr, nullptr);
    }
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_ADAGRAD> : AllSlots<0b1> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    rules::adagrad(param, gradient, slot[0], value, flag[rules::Adagrad::decays],
                   flag[rules::Adagrad::first]);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_LION> : AllSlots<0b1> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool*) {
    rules::lion(param, gradient, slot[0], value);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_ADAMAX> : AllSlots<0b11> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    rules::adamax(param, gradient, slot[0], slot[1], value, flag[rules::Adamax::decays]);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_ADADELTA> : AllSlots<0b11> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    rules::adadelta(param, gradient, slot[0], slot[1], value, flag[rules::Adadelta::decays]);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_RADAM> : AllSlots<0b11> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    rules::radam(param, gradient, slot[0], slot[1], value, flag[rules::Radam::decays],
                 flag[rules::Radam::rectified]);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_NADAM> : AllSlots<0b11> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    rules::nadam(param, gradient, slot[0], slot[1], value, flag[rules::Nadam::decays]);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_RPROP> : AllSlots<0b11> {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    rules::rprop(param, gradient, slot[0], slot[1], value, flag[rules::Rprop::first]);
  }
};

template <>
struct RuleOf<ZERO_OPTIMIZER_LARS> : MomentumSlot {
  template <class Real>
  ZERO_ELEMENT static void update(Real& param, Real gradient, Real* slot, const Real* value,
                                  const bool* flag) {
    using rules::Lars;
    const bool decays = flag[Lars::decays], first = flag[Lars::first];
    if (flag[Lars::has_momentum]) {
      rules::lars(param, gradient, &slot[0], value, decays, first, flag[Lars::nesterov]);
    } else {
      rules::lars<Real>(param, gradient, nullptr, value, decays, first, flag[Lars::nesterov]);
    }
  }
};

/// Calls function(std::integral_constant<int32_t, optimizer>{}); false where no launch updates by
/// the rule: LAMB's step needs norms of whole tensors.
template <class Function, int32_t optimizer = 0>
bool with_rule(int32_t number, const Function& function) {
  if constexpr (optimizer == kRuleCount) {
    return false;
  } else {
    if (number != optimizer) return with_rule<Function, optimizer + 1>(number, function);
    if constexpr (optimizer == ZERO_OPTIMIZER_LAMB)
      return false;
    else
      function(std::integral_constant<int32_t, optimizer>{});
    return true;
  }
}

}  // namespace zero::launch
