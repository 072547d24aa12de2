// SPDX-License-Identifier: Apache-2.0
// What the rows of all optimizers are made of. Scalars are formed in fp64, with no call into libm
// but the square root, so that they are the same on every machine.
#pragma once

#include "kernels/rule.h"

namespace zero {

extern const Rule kAdamwRule, kAdamRule, kSgdRule, kRmspropRule, kAdagradRule, kLionRule,
    kAdamaxRule, kAdadeltaRule, kRadamRule, kNadamRule, kRpropRule, kLambRule, kLarsRule;

namespace rows {

// ---- Settings that several rules have.

constexpr Setting rate(double initial) { return {"lr", initial, Setting::positive_or_zero}; }
constexpr Setting epsilon(double initial) { return {"eps", initial, Setting::positive_or_zero}; }
constexpr Setting decay(double initial) {
  return {"weight_decay", initial, Setting::positive_or_zero};
}
inline constexpr Setting kMaximize = {"maximize", 0, Setting::flag};
/// Trust ratios also where nothing decays: biases and scales are usually left as they are.
inline constexpr Setting kAlwaysAdapt = {"always_adapt", 0, Setting::flag};

// ---- Slots and scalars.

constexpr uint32_t first_slots(int count) { return (1u << count) - 1; }

template <int count>
uint32_t always_uses(std::span<const double>) {
  return first_slots(count);
}

inline bool adapts(double weight_decay, double always_adapt) {
  return weight_decay != 0 || always_adapt != 0;
}

ZERO_HOST_DEVICE inline double signed_factor(const StepContext& context, bool maximize) {
  return maximize ? -context.factor : context.factor;
}

}  // namespace rows
}  // namespace zero
