// SPDX-License-Identifier: Apache-2.0
// Lists all rules. Tables, loops and launches are generated from this list.
#pragma once

#include <bit>

#include "rules/adadelta.h"
#include "rules/adagrad.h"
#include "rules/adam.h"
#include "rules/adamax.h"
#include "rules/adamw.h"
#include "rules/adan.h"
#include "rules/ademamix.h"
#include "rules/lamb.h"
#include "rules/lars.h"
#include "rules/lion.h"
#include "rules/nadam.h"
#include "rules/radam.h"
#include "rules/rmsprop.h"
#include "rules/rprop.h"
#include "rules/sgd.h"

namespace zero {

template <class... Rules>
struct RuleList {
  static constexpr int kCount = sizeof...(Rules);
  static constexpr bool is_in_order() {
    int32_t place = 0;
    return ((Rules::number == place++) && ...);
  }
};

/// In the order of ZERO_OPTIMIZER_*.
using AllRules = RuleList<rules::Adamw, rules::Adam, rules::Sgd, rules::Rmsprop, rules::Adagrad,
                          rules::Lion, rules::Adamax, rules::Adadelta, rules::Radam, rules::Nadam,
                          rules::Rprop, rules::Lamb, rules::Lars, rules::Adan, rules::Ademamix>;
static_assert(AllRules::is_in_order());
inline constexpr int kRuleCount = AllRules::kCount;

template <class Of>
inline constexpr int kSlotsOf = std::size(Of::slots);

/// Returns the scalars that a rule computes for a step.
template <class Of>
ZERO_HOST_DEVICE Scalars prepare(const StepContext& context) {
  const rules::In<Of> in(context);
  Scalars scalars = in.scalars();
  if constexpr (requires { Of::prepare(scalars, in); }) Of::prepare(scalars, in);
  return scalars;
}

/// The number of slots that a rule uses if none of its flags is set.
template <class Of>
inline constexpr int kSlotsAlways = std::popcount(Of::used(Scalars().flag));

/// True if update() computes the new parameter; false if it computes the direction (see Trust).
template <class Of>
inline constexpr bool kUpdatesElements = [] {
  if constexpr (requires { Of::trust; }) return !Of::trust.of_update;
  return true;
}();

/// Calls function(rule) with an object of the rule's type. Returns false if there is no such rule.
template <class Function, class... Rules>
bool with_rule(int32_t number, const Function& function, RuleList<Rules...>) {
  return ((number == Rules::number && (function(Rules()), true)) || ...);
}
template <class Function>
bool with_rule(int32_t number, const Function& function) {
  return with_rule(number, function, AllRules());
}

// A device cannot call host function pointers, so these find Rule::prepare and ::next_product by
// number.

template <class... Rules>
ZERO_HOST_DEVICE Scalars prepare_scalars(int32_t number, const StepContext& context,
                                         RuleList<Rules...>) {
  Scalars scalars;
  static_cast<void>(
      ((number == Rules::number && (scalars = prepare<Rules>(context), true)) || ...));
  return scalars;
}

template <class Of>
ZERO_HOST_DEVICE double next_product(const StepContext& context) {
  if constexpr (requires { Of::next_product(context); }) return Of::next_product(context);
  return context.product;
}

template <class... Rules>
ZERO_HOST_DEVICE double next_product(int32_t number, const StepContext& context,
                                     RuleList<Rules...>) {
  double product = context.product;
  static_cast<void>(
      ((number == Rules::number && (product = next_product<Rules>(context), true)) || ...));
  return product;
}

}  // namespace zero
