// SPDX-License-Identifier: Apache-2.0
// One stream of one rank, cut into pieces that can be shown.
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
  /// Read what is there; false if that is nothing for now.
  bool read_some(int64_t now_ms);
  /// When what has no end has waited for it long enough; Lines::kNever if nothing waits.
  int64_t due_ms() const;
  void show_if_due(int64_t now_ms);
  /// The last line may lack its end.
  void close();

 private:
  void show(size_t count);

  int fd_;
  int id_;
  std::string prefix_;
  Lines* lines_;
  std::string waiting_;
  int64_t due_ms_ = 0;  // for what is waiting
};

}  // namespace zero_run
