// SPDX-License-Identifier: Apache-2.0
// Writes one of zero-run's own streams without ever blocking.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero_run {

/// Queues bytes, and writes them when the stream accepts them.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool pending() const { return !broken_ && queue_.size() > written_; }
  bool broken() const { return broken_; }  // its reader has gone
  bool full() const;                       // ranks should wait until it is written

  void add(std::string_view bytes);
  /// Writes what cannot block, after poll has reported POLLOUT.
  void write_some();

 private:
  int fd_;
  std::string queue_;
  size_t written_ = 0;  // of queue_
  bool broken_ = false;
};

/// Returns true if both streams end in the same place, as with 2>&1.
bool same_destination(int one, int other);

}  // namespace zero_run
