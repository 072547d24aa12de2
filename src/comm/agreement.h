// SPDX-License-Identifier: Apache-2.0
// Finds the first difference of two long, normally equal texts, cut short for error messages.
#pragma once

#include <string>
#include <string_view>

namespace zero {

struct Difference {
  std::string a;
  std::string b;
};

/// Returns both sides of the first line that differs, each cut to about 200 bytes around the
/// difference. If both lines have the same number of tab-separated fields, the result contains only
/// the fields that differ. A missing line is returned as "nothing".
Difference first_difference(std::string_view a, std::string_view b);

}  // namespace zero
