// SPDX-License-Identifier: Apache-2.0
// The lines of many ranks in one stream, each with its prefix, and none inside another.
//
// An unfinished line, such as a progress bar, stays open. While its rank alone writes, its bytes
// pass unchanged, with the prefix repeated after each '\r'. When another rank writes, a terminal
// gets a row per unfinished line below all finished ones; any other stream gets a new line first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace zero_run {

class Lines {
 public:
  explicit Lines(int fd);

  Output& output() { return output_; }
  const Output& output() const { return output_; }

  /// Adds what stream `id` wrote: finished lines, and perhaps a part of one. Sorts rows by id.
  void add(int id, const std::string& prefix, std::string_view bytes);
  /// Ends the unfinished line of stream `id`, to which nothing follows.
  void end(int id);
  /// Must be called when something else has moved the terminal's cursor to the start of a line.
  void lose_place();

  /// Returns when rows must be drawn again, or kNever if they are up to date.
  int64_t due_ms() const;
  void draw_if_due(int64_t now_ms);

  static constexpr int64_t kNever = INT64_MAX;

 private:
  struct Line {
    int id = -1;
    std::string prefix;
    std::string text;       // since the last '\r'
    bool begun = false;     // its prefix has been written
    bool returned = false;  // the next text overwrites this one
  };

  void add_piece(int id, const std::string& prefix, std::string_view piece);
  void make_way();
  void add_to_row(int id, const std::string& prefix, std::string_view piece);
  void finish_row(size_t row);
  void erase_rows();
  static std::string append(Line& line, std::string_view piece);

  Output output_;
  const bool terminal_;     // can move its cursor
  Line open_;               // if id >= 0, the cursor is at its end and there are no rows
  std::vector<Line> rows_;  // unfinished lines, by id
  size_t drawn_ = 0;        // how many rows are on the terminal; the cursor is in the last one
  bool changed_ = false;    // rows differ from what is on the terminal
  int64_t draw_ms_ = 0;     // the earliest time of the next drawing
};

}  // namespace zero_run
