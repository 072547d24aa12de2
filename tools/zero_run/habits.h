// SPDX-License-Identifier: Apache-2.0
// Knows options of other launchers that people type by habit.
#pragma once

#include <string>
#include <string_view>

namespace zero_run {

/// An option as it was typed: "--nproc_per_node=4" is nproc-per-node and 4, "-n4" is n and 4.
struct TypedOption {
  explicit TypedOption(std::string_view typed);

  std::string name;  // without leading dashes
  std::string_view value;
  bool has_value = false;
};

/// Returns true if the option's value is the number of ranks.
bool counts_ranks(std::string_view name);
/// Returns true if the option asks for what zero-run does anyway.
bool asks_for_nothing(std::string_view name);

struct Habit {
  std::string_view name;
  std::string_view harmless;  // a value that asks for nothing
  const char* words;          // what zero-run does instead, and what to do
};

/// Returns nullptr if no other known launcher has the option.
const Habit* find_habit(std::string_view name);

}  // namespace zero_run
