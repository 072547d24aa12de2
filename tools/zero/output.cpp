// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "base/text.h"
#include "state/json.h"

namespace zero::tool {

Json json_of(double value) { return std::isfinite(value) ? Json(value) : Json(text(value)); }

namespace {

void put_line(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
}

}  // namespace

void print_json(const Json& document) {
  put_line(document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_line(std::string_view line) { put_line(tame(std::string(line))); }

winsize terminal_size(int fd) {
  winsize size{};
  const bool told = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return told ? size : winsize{24, 80, 0, 0};
}

/// Returns how many columns a terminal needs for the words, if each character is one column wide.
size_t width_of(std::string_view words) {
  return static_cast<size_t>(std::ranges::count_if(words, std::not_fn(continues_character)));
}

std::vector<std::string> table_lines(const Rows& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    if (row.size() == 1) continue;
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); i++) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    line.resize(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

void print_table(const Rows& rows) {
  for (const std::string& line : table_lines(rows)) print_line(line);
}

std::string tame(std::string words) {
  for (size_t at = 0; at < words.size(); at++)
    if (const size_t control = control_character_bytes(std::string_view(words).substr(at));
        control > 0)
      words.replace(at, control, "?");
  return words;
}

std::string printable(std::string_view name) {
  const std::string quoted = json_quote(name);
  return quoted.size() == name.size() + 2 ? std::string(name) : quoted;
}

std::string fixed(double number, int digits) {
  char words[64];
  std::snprintf(words, sizeof words, "%.*f", digits, number);
  return words;
}

std::string seconds_text(double microseconds) {
  if (microseconds < 1e3) return fixed(microseconds, 1) + " us";
  return microseconds < 1e6 ? fixed(microseconds / 1e3, 2) + " ms"
                            : fixed(microseconds / 1e6, 2) + " s";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t dimension : shape) out += text(out.empty() ? "" : ", ", dimension);
  return "[" + out + "]";
}

std::string counted(uint64_t count, const char* what) {
  return text(count, ' ', what, count == 1 ? "" : "s");
}

}  // namespace zero::tool
