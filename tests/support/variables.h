// SPDX-License-Identifier: Apache-2.0
// Environment variables that a launcher sets for its ranks.
#pragma once

#include <map>
#include <sstream>
#include <string>

#include "comm/launch.h"

namespace zero::test {

/// Constructed from assignments in shell syntax.
struct Variables : std::map<std::string, std::string> {
  using map::map;
  Variables(const std::string& assignments) {
    std::istringstream words(assignments);
    for (std::string word; words >> word;)
      emplace(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  }
  Variables(const char* assignments) : Variables(std::string(assignments)) {}
};

inline Lookup lookup_in(const Variables& variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

inline Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

}  // namespace zero::test
