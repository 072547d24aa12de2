// SPDX-License-Identifier: Apache-2.0
// Two long texts that should be equal: the part where they first differ, short enough for a
// sentence.
#pragma once

#include <string>
#include <string_view>

namespace zero {

struct Difference {
  std::string a;
  std::string b;
};

/// Of the first line that differs, both sides, cut to some 200 bytes around the place; of a line in
/// as many fields, ended by tabs, only those fields. "nothing" stands for a line that is not there.
Difference first_difference(std::string_view a, std::string_view b);

}  // namespace zero
