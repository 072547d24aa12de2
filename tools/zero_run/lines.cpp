// SPDX-License-Identifier: Apache-2.0
#include "lines.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace zero_run {
namespace {

constexpr size_t kLongestRow = 64 << 10;  // longer unfinished lines are cut
constexpr int64_t kDrawMs = 50;           // between two drawings

bool moves_its_cursor(int fd) {
  const char* kind = getenv("TERM");
  return isatty(fd) && kind != nullptr && *kind != '\0' && strcmp(kind, "dumb") != 0;
}

/// Returns true if the foreground group is another. A terminal without a session has none.
bool in_background(int fd) {
  const pid_t foreground = tcgetpgrp(fd);
  return foreground >= 0 && foreground != getpgrp();
}

winsize window(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  if (size.ws_row == 0) size.ws_row = 24;
  if (size.ws_col == 0) size.ws_col = 80;
  return size;
}

/// Returns the length of the escape sequence with which a text begins.
size_t escape_length(std::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == ']') {  // until BEL or ESC
    const size_t end = text.find_first_of("\a\033", 2);
    return end == std::string_view::npos ? text.size() : end + (text[end] == '\a' ? 1 : 0);
  }
  if (text[1] != '[') return 2;
  size_t end = 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

/// Returns a text that fits into one row. Of escape sequences, only colours are kept.
std::string one_row(std::string_view text) {
  std::string row;
  bool colours = false;
  while (!text.empty()) {
    const size_t length = text[0] == '\033' ? escape_length(text) : 1;
    const std::string_view next = text.substr(0, length);
    const bool colour = length > 2 && next[1] == '[' && next.back() == 'm';
    if (colour || (length == 1 && !strchr("\a\v\f\033", next[0]))) row += next;
    colours |= colour;
    text.remove_prefix(length);
  }
  return colours ? row + "\033[0m" : row;
}

/// Returns the number of UTF-8 characters, without escape sequences.
size_t width(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    const size_t length = text[0] == '\033' ? escape_length(text) : 1;
    if (length == 1 && (text[0] & 0xc0) != 0x80) ++count;
    text.remove_prefix(length);
  }
  return count;
}

}  // namespace

Lines::Lines(int fd) : output_(fd), terminal_(moves_its_cursor(fd)) {}

void Lines::add(int id, const std::string& prefix, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end == std::string_view::npos ? end : end + 1);
    bytes.remove_prefix(piece.size());
    add_piece(id, prefix, piece);
  }
}

void Lines::add_piece(int id, const std::string& prefix, std::string_view piece) {
  if (open_.id >= 0 && open_.id != id) make_way();
  if (!rows_.empty()) return add_to_row(id, prefix, piece);
  if (open_.id < 0) open_ = {.id = id, .prefix = prefix, .text = {}};
  output_.add(append(open_, piece));
  if (piece.back() == '\n') open_ = {};
}

/// Adds a piece to a line. Returns the bytes that show it if the cursor is on the line.
std::string Lines::append(Line& line, std::string_view piece) {
  std::string shown;
  while (!piece.empty()) {
    const size_t stop = std::min(piece.find_first_of("\r\n"), piece.size());
    const std::string_view text = piece.substr(0, stop);
    const char mark = stop < piece.size() ? piece[stop] : '\0';
    const bool empty_line = mark == '\n' && !line.begun;
    if (!text.empty() && line.returned) line.text.clear();
    if (empty_line || (!text.empty() && (!line.begun || line.returned))) shown += line.prefix;
    line.begun |= empty_line || !text.empty();
    line.returned &= text.empty();
    if (line.text.size() <= kLongestRow) line.text += text;
    shown += text;
    if (mark == '\r') line.returned = line.begun;
    if (stop == piece.size()) break;
    shown += mark;
    piece.remove_prefix(stop + 1);
  }
  return shown;
}

/// Runs before another stream writes. The open line becomes a row, or ends.
void Lines::make_way() {
  const bool fits = width(open_.prefix) + width(open_.text) <= window(output_.fd()).ws_col;
  if (open_.begun && terminal_ && fits && !in_background(output_.fd())) {
    rows_.push_back(std::move(open_));
    drawn_ = 1;
  } else if (open_.begun) {
    output_.add("\n");
  }
  open_ = {};
}

void Lines::add_to_row(int id, const std::string& prefix, std::string_view piece) {
  const auto place = std::lower_bound(rows_.begin(), rows_.end(), id,
                                      [](const Line& line, int key) { return line.id < key; });
  const auto row = static_cast<size_t>(place - rows_.begin());
  if (place == rows_.end() || place->id != id) {
    rows_.insert(place, {.id = id, .prefix = prefix, .text = {}});
  }
  append(rows_[row], piece);
  changed_ = true;
  if (piece.back() == '\n' || rows_[row].text.size() > kLongestRow) finish_row(row);
}

/// Writes the row as a finished line above the other rows.
void Lines::finish_row(size_t row) {
  erase_rows();
  output_.add(rows_[row].prefix + rows_[row].text + '\n');
  rows_.erase(rows_.begin() + static_cast<ptrdiff_t>(row));
  changed_ = !rows_.empty();
}

void Lines::erase_rows() {
  if (drawn_ > 1) output_.add("\033[" + std::to_string(drawn_ - 1) + "A");
  if (drawn_ > 0) output_.add("\r\033[J");
  drawn_ = 0;
}

void Lines::end(int id) {
  if (open_.id == id) {
    if (open_.begun) output_.add("\n");
    open_ = {};
  }
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].id == id) return finish_row(row);
  }
}

void Lines::lose_place() {
  if (!isatty(output_.fd())) return;
  open_ = {};
  drawn_ = 0;
  changed_ = !rows_.empty();
}

int64_t Lines::due_ms() const {
  if (!changed_) return kNever;
  return drawn_ == 0 ? 0 : draw_ms_;  // erased rows are drawn again at once
}

void Lines::draw_if_due(int64_t now_ms) {
  if (due_ms() > now_ms) return;
  erase_rows();
  const size_t most = std::max(window(output_.fd()).ws_row - 1, 1);
  std::string text = "\033[?7l";  // rows that are too long are cut off, not wrapped
  for (; drawn_ < std::min(rows_.size(), most); ++drawn_) {
    if (drawn_ > 0) text += '\n';
    text += rows_[drawn_].prefix + one_row(rows_[drawn_].text);
  }
  output_.add(text + "\033[?7h");
  changed_ = false;
  draw_ms_ = now_ms + kDrawMs;
  if (rows_.size() > 1) return;
  open_ = std::move(rows_.front());
  rows_.clear();
  drawn_ = 0;
}

}  // namespace zero_run
