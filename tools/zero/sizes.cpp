// SPDX-License-Identifier: Apache-2.0
#include "sizes.h"

#include <algorithm>

#include "base/text.h"
#include "output.h"

namespace zero::tool {
namespace {

constexpr SizeUnit kUnits[] = {{1, "bytes"}, {1e3, "kB"},  {1e6, "MB"},
                               {1e9, "GB"},  {1e12, "TB"}, {1e15, "PB"}};

/// Returns the first unit in which a size is below `limit`.
SizeUnit unit_below(double bytes, double limit) {
  for (const SizeUnit& unit : kUnits)
    if (bytes < limit * unit.bytes) return unit;
  return *std::rbegin(kUnits);
}

/// Returns how many decimals show three digits of a number, at most three.
int digits_for(double number) {
  int digits = 0;
  for (double limit = 100; digits < 3 && number < limit; limit /= 10) digits++;
  return digits;
}

}  // namespace

SizeUnit unit_of(double most) { return unit_below(most, 1e4); }

std::string bytes_text(double bytes) {
  const SizeUnit unit = unit_below(bytes, 1e3);
  return text(fixed(bytes / unit.bytes, unit.bytes == 1 ? 0 : 2), ' ', unit.name);
}

std::string grouped(double number, int digits) {
  std::string words = fixed(number, digits);
  const size_t end = std::min(words.find('.'), words.size());
  for (size_t left = end; left > 3; left -= 3) words.insert(left - 3, ",");
  return words;
}

std::vector<std::string> size_column(const std::vector<uint64_t>& sizes, SizeUnit unit) {
  uint64_t least = UINT64_MAX;
  for (const uint64_t size : sizes)
    if (size > 0) least = std::min(least, size);
  const int digits = unit.bytes == 1 ? 0 : digits_for(static_cast<double>(least) / unit.bytes);
  std::vector<std::string> column;
  size_t width = 0;
  for (const uint64_t size : sizes) {
    const double number = static_cast<double>(size) / unit.bytes;
    column.push_back(text(grouped(number, size == 0 ? 0 : digits), ' ', unit.name));
    width = std::max(width, column.back().size());
  }
  for (std::string& cell : column) cell.insert(0, width - cell.size(), ' ');
  return column;
}

}  // namespace zero::tool
