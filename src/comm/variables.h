// SPDX-License-Identifier: Apache-2.0
// Variables of the environment, looked up so that a test can have its own.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <string_view>
#include <system_error>

#include "base/status.h"
#include "base/text.h"

namespace zero {

/// The value of a variable, or nullptr.
using Lookup = std::function<const char*(const char* name)>;

/// A variable's value; a variable set to nothing counts as not set.
inline const char* value_of(const Lookup& lookup, const char* name) {
  const char* value = name == nullptr ? nullptr : lookup(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

inline Result<int64_t> number(const char* name, std::string_view value, int64_t least,
                              int64_t most) {
  int64_t parsed = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, parsed);
  if (error != std::errc() || stop != end || parsed < least || parsed > most) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(name, " is '", value, "', not a number from ", least, " to ", most));
  }
  return parsed;
}

}  // namespace zero
