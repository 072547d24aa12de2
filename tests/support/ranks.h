// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of a group as threads or as forked processes, and brings back what each of them
// says.
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

/// `launched`: by an mpirun, which has started the test program once for each (mpi_ranks.h).
enum class RankKind { threads, processes, launched };

struct RankEnd {
  bool returned = false;  // the body came to its end, and `result` is what it returned
  bool hung = false;      // it did not until the deadline and was killed
  int exit_status = 0;    // of a process; 1 if an expectation failed in it
  int signal = 0;         // that ended the process, or 0
  std::string result;
};

/// Run body(0) ... body(world - 1) and wait until all have ended. Processes are forked, so the
/// caller must be the only thread; expectations work in both kinds. A process that is not done by
/// the deadline is named and killed; a thread cannot be, so then the test program is aborted.
std::vector<RankEnd> run_ranks(RankKind kind, int world,
                               const std::function<std::string(int rank)>& body,
                               int64_t deadline_ms = 240'000);

/// The same where every rank must return and exit with 0; gives the results.
std::vector<std::string> run_sound_ranks(RankKind kind, int world,
                                         const std::function<std::string(int rank)>& body,
                                         int64_t deadline_ms = 240'000);

/// Called by who runs ranks that are processes when one has ended.
inline void (*on_rank_end)() = [] {};

/// Of the launched: runs body(rank) on this one, and brings what each of them returned, in rank
/// order. mpi_ranks.h sets it.
inline std::vector<std::string> (*run_among_launched)(
    const std::function<std::string(int rank)>& body);

/// Leaves a descriptor of the library's to children that are forked while this stands.
class KeptInChildren {
 public:
  explicit KeptInChildren(int fd) : fd_(fd) { (void)forget_descriptor(fd); }
  ~KeptInChildren() { note_descriptor(fd_); }
  KeptInChildren(const KeptInChildren&) = delete;
  KeptInChildren& operator=(const KeptInChildren&) = delete;

 private:
  const int fd_;
};

/// A forked child that lives while this does, as a data loader's worker.
class Worker {
 public:
  explicit Worker(pid_t (*fork)() noexcept = ::fork);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  const pid_t pid_;
};

/// A name that no other group of this machine has, in this run or another. For ranks that are
/// processes, ask before they are forked.
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
