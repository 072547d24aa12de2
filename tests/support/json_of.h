// SPDX-License-Identifier: Apache-2.0
// JSON that can be read in a test's own source, and JSON that is damaged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace zero::test {

/// With double quotes for single ones.
inline std::string json_of(std::string_view json) {
  std::string text(json);
  std::replace(text.begin(), text.end(), '\'', '"');
  return text;
}

/// A text as some accident leaves it: a few of its bytes are others of `odd`, gone or copied.
template <class Random>
std::string damaged(std::string text, std::string_view odd, Random& random) {
  for (uint32_t times = random() % 3 + 1; times > 0; times--) {
    const size_t at = random() % text.size();
    const uint32_t way = random() % 3, bytes = random() % 40;
    if (way == 0) text[at] = odd[random() % odd.size()];
    if (way == 1) text.erase(at, bytes % 6 + 1);
    if (way == 2) text.insert(at, text.substr(random() % text.size(), bytes));
    if (text.empty()) text = "{";
  }
  return text;
}

}  // namespace zero::test
