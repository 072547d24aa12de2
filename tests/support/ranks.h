// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of a group as threads or forked processes, and returns the result of each.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fork.h"
#include "support/statuses.h"

namespace zero::test {

/// `launched`: an mpirun has started the test program once per rank (mpi_ranks.h).
enum class RankKind { threads, processes, launched };

struct RankEnd {
  bool returned = false;  // the body ended, and `result` is what it returned
  bool hung = false;      // it missed the deadline and was killed
  int exit_status = 0;    // of a process; 1 if an expectation failed in it
  int signal = 0;         // the signal that ended the process, or 0
  std::string result;
};

/// Runs body(0) ... body(world - 1) and waits until all have ended. Processes are forked, so the
/// caller must be the only thread. Expectations work in both kinds. A process that misses the
/// deadline is reported and killed. A thread cannot be killed, so the test program aborts.
std::vector<RankEnd> run_ranks(RankKind kind, int world,
                               const std::function<std::string(int rank)>& body,
                               int64_t deadline_ms = 240'000);

/// Does the same if every rank must return and exit with 0. Returns the results.
std::vector<std::string> run_sound_ranks(RankKind kind, int world,
                                         const std::function<std::string(int rank)>& body,
                                         int64_t deadline_ms = 240'000);

/// Called when one of the rank processes has ended.
inline void (*on_rank_end)() = [] {};

/// For launched ranks: runs body(rank) on this rank, and returns the results of all ranks in rank
/// order. mpi_ranks.h sets it.
inline std::vector<std::string> (*run_among_launched)(
    const std::function<std::string(int rank)>& body);

/// While this exists, forked children keep a descriptor of the library open.
class KeptInChildren {
 public:
  explicit KeptInChildren(int fd) : fd_(fd) { (void)forget_descriptor(fd); }
  ~KeptInChildren() { note_descriptor(fd_); }
  KeptInChildren(const KeptInChildren&) = delete;
  KeptInChildren& operator=(const KeptInChildren&) = delete;

 private:
  const int fd_;
};

/// A forked child that lives as long as this object, like a data loader's worker.
class Worker {
 public:
  explicit Worker(pid_t (*fork)() noexcept = ::fork);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  const pid_t pid_;
};

/// Returns a name that no other group on this machine has, in this run or another. For ranks that
/// are processes, call it before they are forked.
std::string unique_name();

/// Zeroed memory that forked children share with their parent.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_;
  size_t bytes_;
};

}  // namespace zero::test
