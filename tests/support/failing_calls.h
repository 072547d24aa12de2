// SPDX-License-Identifier: Apache-2.0
// Counts and records the library's file calls. The n-th call fails with an errno once or always,
// stalls and then succeeds, or kills the process. A fault applies to all calls or to those of one
// rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zero::test {

struct Fault {
  enum Kind { none, error, short_transfer, stall, kill };
  Kind kind = none;
  int64_t at = 0;  // the number of the call among those that match, from 0
  int error_number = EIO;
  bool for_ever = false;       // all later calls fail as well
  bool done_first = false;     // the call takes place, and then reports the error
  int rank = -1;               // only calls of this rank (set_rank); -1: all
  bool aside = false;          // only calls of threads without a rank, which are the library's own
  std::string operation = {};  // only calls with this name ("fsync"); "": all
};

struct FileCall {
  std::string operation;
  std::string name;  // as it was opened, or the last component of the path; for renames "from>to"
  int rank;
  bool failed;
};

/// In force while it exists, on top of calls that were replaced before. Only one may exist. Safe
/// for ranks that are threads. Its destructor wakes calls that stall.
class FailingCalls {
 public:
  explicit FailingCalls(Fault fault = {});
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  /// Returns the number of file calls so far that match the rank and operation of the fault.
  int64_t calls() const;
  /// Returns how often the fault has taken effect.
  int64_t hits() const;
  /// Returns true while a call stalls.
  bool stalled() const;
  /// Lets calls continue that stall now or later.
  static void wake();
  /// Returns all file calls so far, in order.
  std::vector<FileCall> log() const;
  /// Returns true if a descriptor was synced again after its fsync failed.
  bool synced_again() const;

  /// Calls `call` at every numbered point, on the thread that passes it.
  static void on_point(std::function<void(const char* point)> call);
  /// Calls `call` just before Fault::kill kills this process.
  static void on_kill(std::function<void()> call);
};

/// Sets the rank of this thread, which is -1 at first.
void set_rank(int rank);

}  // namespace zero::test
