// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/os.h"

namespace zero {
namespace {

// Limits waits for changes, which never end if a file server does not reply. Also limits waits for
// forks, whose handlers may wait for a thread that is about to make a change.
// On a busy machine, a thread may have no core for 100 ms.
constexpr int64_t kForkMs = 1000;
constexpr int kWordBits = 64;
constexpr int kMost = 1 << 20;  // the default of Linux's fs.nr_open

// One bit for each descriptor. Pages that were never written occupy no memory.
constinit std::atomic<uint64_t> noted[kMost / kWordBits] = {};
constinit std::atomic<int> changes{0};           // in progress, in all threads
constinit std::atomic<int> forks{0};             // in progress
constinit thread_local int changes_of_mine = 0;  // a signal handler can fork during a change
// A change has waited for kForkMs. The fork may wait for its thread, so no more changes wait for
// it.
constinit std::atomic<bool> forks_wait{false};

void before_fork() {
  forks++;
  const Deadline deadline(kForkMs);
  while (changes != changes_of_mine && !deadline.passed()) {
    // Wait: a slice of kForkMs.
    os().poll(nullptr, 0, 1);
  }
}

void in_parent() {
  if (--forks == 0) forks_wait = false;
}

/// Closes the descriptors. Does not unlock them, because that would also unlock them for the
/// parent. Does not use os(), so that tests do not count these calls.
void in_child() {
  changes = changes_of_mine;  // other threads do not exist in the child
  forks = 0;
  forks_wait = false;
  for (int word = 0; word < kMost / kWordBits; ++word) {
    if (noted[word].load() == 0) continue;  // do not allocate pages that were never written
    for (uint64_t bits = noted[word].load(); bits != 0; bits &= bits - 1)
      real_system_calls().close(word * kWordBits + std::countr_zero(bits));
    noted[word].store(0);
  }
}

/// Registers the fork handlers. If there is no memory for them, the next call tries again.
void watch_forks() {
  static constinit std::atomic<bool> registered{false};
  static constinit std::mutex mutex;
  if (registered.load()) return;
  const std::lock_guard lock(mutex);
  if (!registered.load() && pthread_atfork(before_fork, in_parent, in_child) == 0)
    registered.store(true);
}

}  // namespace

DescriptorChange::DescriptorChange() {
  watch_forks();
  changes_of_mine++;
  const Deadline deadline(kForkMs);
  // Incremented first, so that either this thread sees the fork or the fork sees this change.
  for (changes++; forks > 0 && changes_of_mine == 1 && !forks_wait; changes++) {
    changes--;
    if (deadline.passed()) forks_wait = true;
    // Wait: a slice of kForkMs, in which the other thread forks.
    os().poll(nullptr, 0, 1);
  }
}

DescriptorChange::~DescriptorChange() {
  changes--;
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
