// SPDX-License-Identifier: Apache-2.0
#include "comm/difference.h"

#include <algorithm>

namespace zero {
namespace {

constexpr size_t kShownBytes = 200;
constexpr size_t kShownBeforeBytes = 40;  // of what is equal, where the front must be left out

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

/// The start of the line that holds `position`.
size_t line_start(std::string_view text, size_t position) {
  const size_t newline = position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  return newline == std::string_view::npos ? 0 : newline + 1;
}

/// What to show of the line that begins at `start`, of which `equal` bytes are the same on both
/// sides.
std::string show(std::string_view text, size_t start, size_t equal) {
  if (start >= text.size()) return "nothing";
  const size_t end = text.find('\n', start);
  std::string_view line = text.substr(start, end == std::string_view::npos ? end : end - start);
  if (line.empty()) return "an empty line";
  std::string shown;
  if (line.size() > kShownBytes && equal > kShownBeforeBytes) {
    size_t cut = std::min(equal, line.size()) - kShownBeforeBytes;
    while (cut > 0 && continues_character(line[cut])) --cut;
    line.remove_prefix(cut);
    if (cut > 0) shown = "...";
  }
  const std::string_view part = utf8_prefix(line, kShownBytes);
  shown += part;
  if (part.size() < line.size()) shown += "...";
  return shown;
}

}  // namespace

std::string_view utf8_prefix(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && continues_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

Difference first_difference(std::string_view a, std::string_view b) {
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const size_t place = static_cast<size_t>(at_a - a.begin());
  // Where one text is the other and more lines, the difference is the first line too many, not the
  // equal line in front of it.
  const auto goes_on = [place](std::string_view text) {
    return place < text.size() && text[place] == '\n' && place + 1 < text.size();
  };
  const bool whole_lines =
      place > 0 && ((place == a.size() && goes_on(b)) || (place == b.size() && goes_on(a)));
  if (whole_lines) return {show(a, place + 1, 0), show(b, place + 1, 0)};
  const size_t start = line_start(a, place);
  return {show(a, start, place - start), show(b, start, place - start)};
}

}  // namespace zero
