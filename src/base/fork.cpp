// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/os.h"

namespace zero {
namespace {

// Limits waits for changes, which never end if a file server does not reply. Also limits waits for
// forks, whose handlers may wait for a thread that is about to make a change. On a busy machine, a
// thread may have no core for 100 ms.
constexpr int64_t kForkMs = 1000;
constexpr int kWordBits = 64;
constexpr int kMost = 1 << 20;  // the default of Linux's fs.nr_open

/// Counts changes or forks in progress, in all threads. `mine` is the number of those of the
/// caller.
class InProgress {
 public:
  void begin() { count_++; }
  void end() {
    count_--;
    abandoned_ = 0;
  }
  /// Takes back begin(), for a thread that waits before it begins.
  void take_back() { count_--; }
  /// Returns true if others are in progress that are not abandoned.
  bool has_others(int mine) const { return count_ - mine > abandoned_; }
  /// Ends all waits for those that have lasted too long, until one of them ends.
  void abandon_others(int mine) {
    const int count = count_;
    abandoned_ = count - mine;
    if (count_ != count) abandoned_ = 0;  // one may have ended before the line above
  }
  /// Removes all others, because a child has no other threads.
  void remove_others(int mine) {
    count_ = mine;
    abandoned_ = 0;
  }

 private:
  std::atomic<int> count_{0}, abandoned_{0};
};

// One bit for each descriptor. Pages that were never written occupy no memory.
constinit std::atomic<uint64_t> noted[kMost / kWordBits] = {};
constinit InProgress changes, forks;
// A signal handler can fork during a change, and a fork handler can make a change or fork.
constinit thread_local int changes_of_mine = 0, forks_of_mine = 0;

/// Waits a little. Returns false, and abandons the others, if they have lasted too long.
bool wait_for_others(InProgress& others, int mine, const Deadline& deadline) {
  if (deadline.passed()) return others.abandon_others(mine), false;
  // Wait: a slice of kForkMs.
  os().poll(nullptr, 0, 1);
  return true;
}

void before_fork() {
  forks_of_mine++;
  forks.begin();
  const Deadline deadline(kForkMs);
  while (changes.has_others(changes_of_mine) &&
         wait_for_others(changes, changes_of_mine, deadline)) {
  }
}

void in_parent() {
  forks.end();
  forks_of_mine--;
}

/// Closes the descriptors. Does not unlock them, because that would also unlock them for the
/// parent. Does not use os(), so that tests do not count these calls.
void in_child() {
  forks.remove_others(--forks_of_mine);
  changes.remove_others(changes_of_mine);
  for (int word = 0; word < kMost / kWordBits; ++word) {
    if (noted[word].load() == 0) continue;  // do not allocate pages that were never written
    for (uint64_t bits = noted[word].load(); bits != 0; bits &= bits - 1)
      real_system_calls().close(word * kWordBits + std::countr_zero(bits));
    noted[word].store(0);
  }
}

/// Registers the fork handlers. If there is no memory for them, the next call tries again. Two
/// threads may both register them, because a second call of a handler does no harm.
void watch_forks() {
  static constinit std::atomic<bool> registered{false};
  if (!registered && pthread_atfork(before_fork, in_parent, in_child) == 0) registered = true;
}

}  // namespace

DescriptorChange::DescriptorChange() {
  watch_forks();
  bool waits = changes_of_mine == 0;
  const Deadline deadline(kForkMs);
  // Begins before it looks, so that either this thread sees the fork or the fork sees this change.
  for (;;) {
    changes_of_mine++;
    changes.begin();
    if (!waits || !forks.has_others(forks_of_mine)) return;
    changes.take_back();
    changes_of_mine--;
    waits = wait_for_others(forks, forks_of_mine, deadline);
  }
}

DescriptorChange::~DescriptorChange() {
  changes.end();
  changes_of_mine--;
}

void note_descriptor(int fd) {
  if (fd >= 0 && fd < kMost) noted[fd / kWordBits].fetch_or(uint64_t{1} << fd % kWordBits);
}

bool forget_descriptor(int fd) {
  if (fd < 0 || fd >= kMost) return fd >= 0;
  const uint64_t bit = uint64_t{1} << fd % kWordBits;
  return (noted[fd / kWordBits].fetch_and(~bit) & bit) != 0;
}

}  // namespace zero
