// SPDX-License-Identifier: Apache-2.0
// Shows the progress of a command on the error stream, as one line, if that is a terminal.
#pragma once

#include <cstdint>

namespace zero::tool {

class ProgressBar {
 public:
  explicit ProgressBar(uint64_t total_bytes);
  /// Removes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done_bytes);
  double seconds() const;

 private:
  const uint64_t total_;
  const int64_t start_ns_;
  const bool on_terminal_;
  int64_t shown_ns_ = 0;  // time of the latest update
};

}  // namespace zero::tool
