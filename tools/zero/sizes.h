// SPDX-License-Identifier: Apache-2.0
// Bytes as words. All of zero counts in decimal units: 1 MB is 1,000,000 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::tool {

struct SizeUnit {
  double bytes;
  const char* name;
};
/// Returns the unit for several sizes, by the largest: it has at most four digits in it.
SizeUnit unit_of(double most);

/// Returns "1.39 GB".
std::string bytes_text(double bytes);
/// Returns "1,991.0" for one digit.
std::string grouped(double number, int digits);
/// Returns sizes in one unit, with as many digits as the smallest needs, and equally wide.
std::vector<std::string> size_column(const std::vector<uint64_t>& sizes, SizeUnit unit);

}  // namespace zero::tool
