// SPDX-License-Identifier: Apache-2.0
// zero-run's output: lines of many ranks into two streams, never blocking, never mixing two lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero_run {

/// One of zero-run's own streams. Lines are queued here and written when the stream takes them.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool pending() const { return !broken_ && queue_.size() > written_; }
  bool broken() const { return broken_; }  // whoever read it has gone
  bool full() const;                       // ranks should wait until it is written
  bool inside_line() const { return inside_line_; }

  void add_line(std::string_view prefix, std::string_view line);
  /// Write what cannot block, after poll said POLLOUT.
  void write_some();

 private:
  int fd_;
  std::string queue_;
  size_t written_ = 0;  // of queue_
  bool inside_line_ = false;
  bool broken_ = false;
};

/// True if both streams end in the same place, as with 2>&1.
bool same_destination(int one, int other);

/// One stream of one rank, cut into lines.
class LineSource {
 public:
  LineSource(int fd, std::string prefix, Output* output)
      : fd_(fd), prefix_(std::move(prefix)), output_(output) {}

  int fd() const { return fd_; }  // -1 after its end
  Output* output() const { return output_; }
  /// Read what is there; false if that is nothing for now.
  bool read_some();
  /// The last line may lack its end.
  void close();

 private:
  int fd_;
  std::string prefix_;
  Output* output_;
  std::string partial_;
};

}  // namespace zero_run
