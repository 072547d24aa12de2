// SPDX-License-Identifier: Apache-2.0
// What several rules are made of. Scalars are formed in fp64, with no call into libm but the square
// root, so that they are the same on every machine. No function of an element may be contracted to
// fma or reassociated: the bits are the contract.
#pragma once

#include <math.h>

#include "rules/rule.h"
#include "zero.h"

namespace zero::rules {

// ---- Settings

constexpr Setting rate(double initial) { return {"lr", initial, Setting::positive_or_zero}; }
constexpr Setting epsilon(double initial) { return {"eps", initial, Setting::positive_or_zero}; }
constexpr Setting beta(const char* name, double initial) {
  return {name, initial, Setting::unit_interval};
}
constexpr Setting decay(double initial) {
  return {"weight_decay", initial, Setting::positive_or_zero};
}
inline constexpr Setting kBeta1 = beta("beta1", 0.9);
inline constexpr Setting kBeta2 = beta("beta2", 0.999);
inline constexpr Setting kMomentum = {"momentum", 0, Setting::positive_or_zero};
inline constexpr Setting kNesterov = {"nesterov", 0, Setting::zero_or_one};
inline constexpr Setting kDecoupled = {"decoupled_weight_decay", 0, Setting::zero_or_one};
/// Trust ratios also where nothing decays: biases and scales are usually left as they are.
inline constexpr Setting kAlwaysAdapt = {"always_adapt", 0, Setting::zero_or_one};
inline constexpr Setting kMaximize = {"maximize", 0, Setting::zero_or_one};

/// A setting of `Of`, found by its name when this is compiled.
template <class Of>
struct NamedSetting {
  consteval NamedSetting(const char* name) {
    while (std::string_view(name) != Of::settings[place].name) place++;
  }
  int place = 0;
};

/// What scalars of `Of` are made from, with its settings by name: in["lr"].
template <class Of>
struct In : StepContext {
  ZERO_HOST_DEVICE explicit In(const StepContext& context) : StepContext(context) {}
  ZERO_HOST_DEVICE double operator[](NamedSetting<Of> setting) const {
    return settings[setting.place];
  }
  /// What the scalars of every rule begin with: those that many rules have. Where a rule has a
  /// scalar or a flag of one of these names, it says the same as elsewhere.
  ZERO_HOST_DEVICE Scalars scalars() const {
    const In& in = *this;
    Scalars scalars;
    scalars.factor = in["maximize"] != 0 ? -factor : factor;
    if constexpr (requires { scalars.value[Of::lr]; }) scalars.value[Of::lr] = in["lr"];
    if constexpr (requires { scalars.value[Of::eps]; }) scalars.value[Of::eps] = in["eps"];
    if constexpr (requires { scalars.value[Of::weight_decay]; })
      scalars.value[Of::weight_decay] = in["weight_decay"];
    if constexpr (requires { scalars.flag[Of::decays]; })
      scalars.flag[Of::decays] = in["weight_decay"] != 0;
    if constexpr (requires { scalars.value[Of::momentum]; })
      scalars.value[Of::momentum] = in["momentum"];
    if constexpr (requires { scalars.flag[Of::has_momentum]; })
      scalars.flag[Of::has_momentum] = in["momentum"] != 0;
    if constexpr (requires { scalars.flag[Of::nesterov]; })
      scalars.flag[Of::nesterov] = in["nesterov"] != 0;
    if constexpr (requires { Of::kMoments; }) {
      scalars.value[Of::beta1] = in["beta1"];
      scalars.value[Of::one_minus_beta1] = 1 - in["beta1"];
      scalars.value[Of::beta2] = in["beta2"];
      scalars.value[Of::one_minus_beta2] = 1 - in["beta2"];
    }
    return scalars;
  }
  /// True if the slot holds nothing yet.
  ZERO_HOST_DEVICE bool first(int slot) const { return (live_slots >> slot & 1) == 0; }
};

// ---- Slots

/// A rule that always uses all of its slots.
template <unsigned all>
struct AllSlots {
  ZERO_ELEMENT static constexpr unsigned used(const bool*) { return all; }
};

// ---- Scalars

ZERO_HOST_DEVICE inline double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

/// e^x for x <= 0, to about 1e-14: a short series near 0, squared until it is far away.
ZERO_HOST_DEVICE inline double exp_of_negative(double x) {
  if (x < -700) return 0;
  int halvings = 0;
  for (; x < -0x1p-4; x *= 0.5) halvings++;
  double sum = 1;
  for (int k = 12; k > 0; k--) sum = 1 + x * sum / k;
  for (; halvings > 0; halvings--) sum *= sum;
  return sum;
}

/// log(x) for 0 < x < 1, to about 1e-14: roots until it is near 1, then a short series.
ZERO_HOST_DEVICE inline double log_of_less(double x) {
  double doublings = 1;
  for (; x < 0.9375; x = sqrt(x)) doublings *= 2;
  const double part = (1 - x) / (1 + x);
  double sum = 0;
  for (int k = 13; k > 0; k -= 2) sum = sum * (part * part) + 1.0 / k;
  return -2 * doublings * part * sum;
}

/// Of a rule with either kind of weight decay: its scalar `decay` is weight_decay where it `decays`
/// into the gradient, else what the parameter is multiplied with.
template <class Of>
ZERO_HOST_DEVICE void prepare_decay_of_either_kind(Scalars& scalars, const In<Of>& in) {
  const double weight_decay = in["weight_decay"];
  const bool decays = weight_decay != 0 && in["decoupled_weight_decay"] == 0;
  scalars.flag[Of::decays] = decays;
  scalars.value[Of::decay] = decays ? weight_decay : 1 - in["lr"] * weight_decay;
}

// ---- Elements

/// IEEE's own, one instruction each: exact to the bit.
ZERO_ELEMENT float root(float a) { return sqrtf(a); }
ZERO_ELEMENT double root(double a) { return sqrt(a); }
ZERO_ELEMENT float magnitude(float a) { return fabsf(a); }
ZERO_ELEMENT double magnitude(double a) { return fabs(a); }

/// The larger one; NaN if either is.
template <class Real>
ZERO_ELEMENT Real maximum(Real a, Real b) {
  const Real larger = a > b ? a : b;
  return a != a ? a : larger;
}

/// A running average, whose newest value has the weight `rest`.
template <class Real>
ZERO_ELEMENT void average(Real& all, Real newest, Real kept, Real rest) {
  all = all * kept + newest * rest;
}

/// The average of squares.
template <class Real>
ZERO_ELEMENT void average_square(Real& all, Real newest, Real kept, Real rest) {
  all = all * kept + (newest * rest) * newest;
}

/// Of rules with two moments: what their scalars begin with.
struct Moments {
  enum { beta1, one_minus_beta1, beta2, one_minus_beta2, kMoments };

  template <class Real>
  ZERO_ELEMENT static void average_moments(Real* slot, Real gradient, const Real* value) {
    average(slot[0], gradient, value[beta1], value[one_minus_beta1]);
    average_square(slot[1], gradient, value[beta2], value[one_minus_beta2]);
  }
};

}  // namespace zero::rules
