// SPDX-License-Identifier: Apache-2.0
// Defines parts that several rules share. Scalars are computed in fp64 without libm, except for its
// square root, so they are the same on every machine. No function of an element may be contracted
// to fma or reassociated, because its results are guaranteed bit for bit.
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
/// Applies trust ratios even to parameters without weight decay, which are usually biases and
/// scales.
inline constexpr Setting kAlwaysAdapt = {"always_adapt", 0, Setting::zero_or_one};
inline constexpr Setting kMaximize = {"maximize", 0, Setting::zero_or_one};

/// A setting of `Of`, found by its name at compile time.
template <class Of>
struct NamedSetting {
  consteval NamedSetting(const char* name) {
    while (std::string_view(name) != Of::settings[place].name) place++;
  }
  int place = 0;
};

/// The input from which the scalars of `Of` are computed. It returns settings by name: in["lr"].
template <class Of>
struct In : StepContext {
  ZERO_HOST_DEVICE explicit In(const StepContext& context) : StepContext(context) {}
  ZERO_HOST_DEVICE double operator[](NamedSetting<Of> setting) const {
    return settings[setting.place];
  }
  /// Returns the scalars that many rules share, with which every rule begins. A scalar or flag with
  /// one of these names has the same meaning in every rule.
  ZERO_HOST_DEVICE Scalars scalars() const {
    const In& in = *this;
    Scalars scalars;
    scalars.step = step;
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
  /// Returns true if the slot holds nothing yet.
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

/// Returns e^x for x <= 0, to about 1e-14. Sums a short series near 0, and squares it back to x.
ZERO_HOST_DEVICE inline double exp_of_negative(double x) {
  if (x < -700) return 0;
  int halvings = 0;
  for (; x < -0x1p-4; x *= 0.5) halvings++;
  double sum = 1;
  for (int k = 12; k > 0; k--) sum = 1 + x * sum / k;
  for (; halvings > 0; halvings--) sum *= sum;
  return sum;
}

/// Returns log(x) for 0 < x < 1, to about 1e-14. Takes square roots until x is near 1, where it
/// sums a short series.
ZERO_HOST_DEVICE inline double log_of_less(double x) {
  double doublings = 1;
  for (; x < 0.9375; x = sqrt(x)) doublings *= 2;
  const double part = (1 - x) / (1 + x);
  double sum = 0;
  for (int k = 13; k > 0; k -= 2) sum = sum * (part * part) + 1.0 / k;
  return -2 * doublings * part * sum;
}

/// Prepares the decay of rules that support both kinds. If decay is added to the gradient, the flag
/// `decays` is set and the scalar `decay` is weight_decay. If not, the parameter is multiplied by
/// the scalar `decay`.
template <class Of>
ZERO_HOST_DEVICE void prepare_decay_of_either_kind(Scalars& scalars, const In<Of>& in) {
  const double weight_decay = in["weight_decay"];
  const bool decays = weight_decay != 0 && in["decoupled_weight_decay"] == 0;
  scalars.flag[Of::decays] = decays;
  scalars.value[Of::decay] = decays ? weight_decay : 1 - in["lr"] * weight_decay;
}

// ---- Elements

/// These are IEEE operations of one instruction each, with exactly defined results.
ZERO_ELEMENT float root(float a) { return sqrtf(a); }
ZERO_ELEMENT double root(double a) { return sqrt(a); }
ZERO_ELEMENT float magnitude(float a) { return fabsf(a); }
ZERO_ELEMENT double magnitude(double a) { return fabs(a); }

/// Returns the larger number, or NaN if either is NaN.
template <class Real>
ZERO_ELEMENT Real maximum(Real a, Real b) {
  const Real larger = a > b ? a : b;
  return a != a ? a : larger;
}

/// Updates a running average. `kept` is the weight of the old one, `rest` that of the new value.
template <class Real>
ZERO_ELEMENT void average(Real& all, Real newest, Real kept, Real rest) {
  all = all * kept + newest * rest;
}

/// Updates a running average of squares.
template <class Real>
ZERO_ELEMENT void average_square(Real& all, Real newest, Real kept, Real rest) {
  all = all * kept + (newest * rest) * newest;
}

/// The first scalars of rules with two moments.
struct Moments {
  enum { beta1, one_minus_beta1, beta2, one_minus_beta2, kMoments };

  template <class Real>
  ZERO_ELEMENT static void average_moments(Real* slot, Real gradient, const Real* value) {
    average(slot[0], gradient, value[beta1], value[one_minus_beta1]);
    average_square(slot[1], gradient, value[beta2], value[one_minus_beta2]);
  }
};

}  // namespace zero::rules
