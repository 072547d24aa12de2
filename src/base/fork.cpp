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

// For changes, which a lost file server makes endless, and for forks, whose handlers of others may
// wait for a thread that is about to make a change.
constexpr int64_t kForkMs = 100;
constexpr int kWordBits = 64;
constexpr int kMost = 1 << 20;  // what Linux lets a process open, unless it is told to allow more

// A bit a descriptor. Only pages that are used take memory.
constinit std::atomic<uint64_t> noted[kMost / kWordBits] = {};
pthread_rwlock_t changes = PTHREAD_RWLOCK_INITIALIZER;  // written by who forks
constinit std::atomic<int> forks{0};                    // under way
constinit thread_local bool forks_alone = false;

void before_fork() {
  forks++;
  const Deadline deadline(kForkMs);
  while (!(forks_alone = pthread_rwlock_trywrlock(&changes) == 0) && !deadline.passed()) {
    // Wait: a slice of kForkMs. A signal's handler may fork in the middle of a change.
    os().poll(nullptr, 0, 1);
  }
}

void in_parent() {
  forks--;
  if (forks_alone) pthread_rwlock_unlock(&changes);
}

/// Only closes: to unlock would unlock for the parent, too. It is no call that a test may count.
void in_child() {
  changes = PTHREAD_RWLOCK_INITIALIZER;  // threads that held it are not here
  forks = 0;
  for (int word = 0; word < kMost / kWordBits; ++word) {
    if (noted[word].load() == 0) continue;  // a page that nobody wrote stays none
    for (uint64_t bits = noted[word].load(); bits != 0; bits &= bits - 1)
      real_system_calls().close(word * kWordBits + std::countr_zero(bits));
    noted[word].store(0);
  }
}

/// Registers the handlers, at the latest try that finds memory for them.
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
  // Wait: a slice, in which threads that make many changes let one fork.
  if (forks > 0) os().poll(nullptr, 0, 1);
  const Deadline deadline(kForkMs);
  while (!(held_ = pthread_rwlock_tryrdlock(&changes) == 0) && !deadline.passed()) {
    // Wait: a slice of kForkMs.
    os().poll(nullptr, 0, 1);
  }
}

DescriptorChange::~DescriptorChange() {
  if (held_) pthread_rwlock_unlock(&changes);
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
