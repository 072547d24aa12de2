// SPDX-License-Identifier: Apache-2.0
// Reads one stream of one rank, and cuts it into pieces that can be shown.
#pragma once

#include <cstdint>
#include <string>

#include "lines.h"

namespace zero_run {

class LineSource {
 public:
  LineSource(int fd, int id, std::string prefix, Lines* lines)
      : fd_(fd), id_(id), prefix_(std::move(prefix)), lines_(lines) {}

  int fd() const { return fd_; }  // -1 after its end
  Lines* lines() const { return lines_; }
  const std::string& prefix() const { return prefix_; }
  /// Reads what is available. Returns false if there is nothing now.
  bool read_some(int64_t now_ms);
  /// Returns when an unfinished line has waited long enough, or Lines::kNever if nothing waits.
  int64_t due_ms() const;
  void show_if_due(int64_t now_ms);
  /// Closes the stream. Its last line may lack its end.
  void close();

 private:
  void show(size_t count);

  int fd_;
  int id_;
  std::string prefix_;
  Lines* lines_;
  std::string waiting_;
  int64_t due_ms_ = 0;  // for the bytes in waiting_
};

}  // namespace zero_run
