// SPDX-License-Identifier: Apache-2.0
// The library's file calls, counted and recorded, of which the n-th fails with an errno, once or
// for ever, takes longer than anybody waits and then succeeds, or kills the process; all of them,
// or one rank's.
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
  bool for_ever = false;       // every later one too
  bool done_first = false;     // the call takes place, and then reports the error
  int rank = -1;               // only calls of this rank (set_rank); -1: all
  bool aside = false;          // only calls of threads that have no rank: those of the library
  std::string operation = {};  // only these ("fsync"); "": all
};

struct FileCall {
  std::string operation;
  std::string name;  // as it was opened, or the path's last name; for renames "from>to"
  int rank;
  bool failed;
};

/// In force from its construction to its end, above whatever replaced calls before; one at a time.
/// Safe for ranks that are threads. Its end wakes calls that stall.
class FailingCalls {
 public:
  explicit FailingCalls(Fault fault = {});
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  /// File calls so far that match the fault's rank and operation.
  int64_t calls() const;
  /// How often the fault has come into force.
  int64_t hits() const;
  /// True while a call stalls.
  bool stalled() const;
  /// Lets calls that stall go on, now and later.
  static void wake();
  /// Every file call so far, in order.
  std::vector<FileCall> log() const;
  /// True if a descriptor was synced again after its fsync failed.
  bool synced_again() const;

  /// Called at every numbered point, on the thread that passes it.
  static void on_point(std::function<void(const char* point)> call);
  /// Called where Fault::kill is about to kill this process.
  static void on_kill(std::function<void()> call);
};

/// Which rank this thread is, from now on; -1 at first.
void set_rank(int rank);

}  // namespace zero::test
