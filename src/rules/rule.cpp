// SPDX-License-Identifier: Apache-2.0
// Defines the table of rules, and finds rules and their settings.
#include "rules/rule.h"

#include <array>

#include "base/refusals.h"
#include "base/text.h"
#include "rules/list.h"

namespace zero {
namespace {

template <class Of>
uint32_t slots_used(std::span<const double> settings) {
  return Of::used(prepare<Of>({.settings = settings.data(), .step = 1}).flag);
}

template <class Of>
constexpr Rule row() {
  static_assert(kSlotsOf<Of> <= kMaxSlots && std::size(Of::settings) <= kMaxSettings);
  static_assert(Of::flags <= kMaxFlags);
  Rule rule = {.number = Of::number,
               .name = Of::name,
               .settings = Of::settings,
               .slots = Of::slots,
               .slots_used = slots_used<Of>,
               .prepare = prepare<Of>};
  if constexpr (requires { Of::next_product; }) rule.next_product = Of::next_product;
  if constexpr (requires { Of::trust; }) rule.trust = &Of::trust;
  return rule;
}

template <class... Rules>
constexpr std::array<Rule, sizeof...(Rules)> rows(RuleList<Rules...>) {
  return {row<Rules>()...};
}

constexpr auto kRules = rows(AllRules{});

}  // namespace

const Rule* find_rule(int32_t optimizer) {
  return optimizer >= 0 && optimizer < kRuleCount ? &kRules[static_cast<size_t>(optimizer)]
                                                  : nullptr;
}

const Rule* find_rule(std::string_view name) {
  for (const Rule& rule : kRules) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

Status no_rule(std::string_view name) {
  std::string known;
  for (const Rule& rule : kRules) known += text(known.empty() ? "" : ", ", rule.name);
  return bad_argument("there is no optimizer '", name, "'; there are ", known);
}

int find_setting(const Rule& rule, std::string_view name) {
  for (size_t i = 0; i < rule.settings.size(); ++i) {
    if (name == rule.settings[i].name) return static_cast<int>(i);
  }
  return -1;
}

Status no_setting(const Rule& rule, std::string_view name) {
  std::string known;
  for (const Setting& one : rule.settings) known += text(known.empty() ? "" : ", ", one.name);
  return bad_argument(rule.name, " has no setting '", name, "'; it has ", known);
}

}  // namespace zero
