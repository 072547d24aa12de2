// SPDX-License-Identifier: Apache-2.0
// JSON that is readable in a test's source, and damaged JSON.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace zero::test {

/// Replaces single quotes by double quotes.
inline std::string json_of(std::string_view json) {
  std::string text(json);
  std::replace(text.begin(), text.end(), '\'', '"');
  return text;
}

/// Damages a text in one to three places: bytes become others from `odd`, are removed, or are
/// copied.
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
