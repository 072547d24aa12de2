// SPDX-License-Identifier: Apache-2.0
// Formats sizes. All of zero uses decimal units: 1 MB is 1,000,000 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::tool {

struct SizeUnit {
  double bytes;
  const char* name;
};
/// Returns one unit for several sizes, in which the largest has at most four digits.
SizeUnit unit_of(double most);

/// Returns a text such as "1.39 GB".
std::string bytes_text(double bytes);
/// Returns a text such as "1,991.0", for one digit.
std::string grouped(double number, int digits);
/// Returns sizes in one unit, with as many digits as the smallest needs, padded to equal width.
std::vector<std::string> size_column(const std::vector<uint64_t>& sizes, SizeUnit unit);

}  // namespace zero::tool
