// SPDX-License-Identifier: Apache-2.0
#include "comm/difference.h"

#include <algorithm>

#include "base/utf8.h"

namespace zero {
namespace {

constexpr size_t kShownBytes = 200;
constexpr size_t kShownBeforeBytes = 40;  // of what is equal, where the front must be left out

/// The start of the line that holds `position`.
size_t line_start(std::string_view text, size_t position) {
  const size_t newline = position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  return newline == std::string_view::npos ? 0 : newline + 1;
}

/// The line of `text` that begins at `start`, without its end.
std::string_view line_at(std::string_view text, size_t start) {
  return text.substr(start, text.find('\n', start) - start);
}

std::string_view take_field(std::string_view& line) {
  const size_t end = std::min(line.find('\t'), line.size());
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

/// Of two lines in as many fields, those that differ; else nothing.
Difference differing_fields(std::string_view a, std::string_view b) {
  const auto fields = [](std::string_view line) {
    return std::count(line.begin(), line.end(), '\t');
  };
  Difference found;
  if (fields(a) == 0 || fields(a) != fields(b)) return found;
  while (!a.empty() || !b.empty()) {
    const std::string_view in_a = take_field(a), in_b = take_field(b);
    if (in_a == in_b) continue;
    const char* const comma = found.a.empty() && found.b.empty() ? "" : ", ";
    found.a.append(comma).append(in_a);
    found.b.append(comma).append(in_b);
  }
  return found;
}

/// What to show of the line that begins at `start`, of which `equal` bytes are the same on both
/// sides.
std::string show(std::string_view text, size_t start, size_t equal) {
  if (start >= text.size()) return "nothing";
  std::string_view line = line_at(text, start);
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
  if (start < a.size() && start < b.size()) {
    const Difference fields = differing_fields(line_at(a, start), line_at(b, start));
    if (!fields.a.empty() || !fields.b.empty()) return {show(fields.a, 0, 0), show(fields.b, 0, 0)};
  }
  return {show(a, start, place - start), show(b, start, place - start)};
}

}  // namespace zero
