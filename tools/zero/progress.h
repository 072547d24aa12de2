// SPDX-License-Identifier: Apache-2.0
// A line on the terminal of the error stream that tells how far a command is. Elsewhere nothing.
#pragma once

#include <cstdint>

namespace zero::tool {

class ProgressBar {
 public:
  explicit ProgressBar(uint64_t total_bytes);
  /// Takes the line away.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done_bytes);
  double seconds() const;

 private:
  const uint64_t total_;
  const int64_t start_ns_;
  const bool on_terminal_;
  int64_t shown_ns_ = 0;  // latest
};

}  // namespace zero::tool
