// SPDX-License-Identifier: Apache-2.0
// Shows where two long texts that should be equal first differ, short enough for a sentence.
#pragma once

#include <string>
#include <string_view>

namespace zero {

struct Difference {
  std::string a;
  std::string b;
};

/// Returns both sides of the first line that differs, cut to some 200 bytes around the place. If
/// both lines have as many fields, ended by tabs, it shows only the fields that differ. "nothing"
/// stands for a missing line.
Difference first_difference(std::string_view a, std::string_view b);

}  // namespace zero
