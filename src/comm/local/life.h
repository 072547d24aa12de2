// SPDX-License-Identifier: Apache-2.0
// Tells who is alive. Each process has a page that others map read-only, with a word that the
// kernel marks when the process dies: a robust futex of a library thread. It is marked before the
// dead process's memory is freed, so its size does not matter. A pidfd is the second witness, and
// the only one where the system has no robust futexes, as emulators and some sandboxes.
#pragma once

#include <linux/futex.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/os.h"
#include "base/status.h"
#include "comm/local/segment.h"
#include "comm/rendezvous.h"

namespace zero::local {

/// A hold on this process's life page. The page and its thread stand while there is a hold. Each
/// seat holds one.
class Life {
 public:
  static Result<Life> begin();
  Life(Life&& other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
  Life& operator=(Life&&) = delete;
  ~Life();

  /// Return the page, to be sent to other processes, and a pidfd of this one, invalid if there are
  /// none.
  int page() const;
  int pidfd() const;

 private:
  explicit Life(pid_t pid) : pid_(pid) {}
  pid_t pid_;  // the process that holds the share: a forked child does not
};

/// The content of a process's page, this one's or another's.
struct LifePage {
  std::atomic<uint32_t> word;  // thread id: alive. FUTEX_OWNER_DIED: dead. 0: its last seat is gone
};
inline constexpr size_t kLifePageBytes = 4096;

/// A process that has ranks, seen from this one; one object for all comms and ranks that watch it.
class Peer final : public Witness {
 public:
  /// Checks and maps a received page. `pidfd` may be invalid.
  static Result<std::shared_ptr<Peer>> meet(int page, Fd pidfd, pid_t pid);

  pid_t pid() const { return pid_; }

  /// True if the kernel has said so. What the process stored before can be read then. Takes two
  /// loads.
  bool dead() const {
    return (word().load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0 ||
           exited_.load(std::memory_order_acquire);
  }
  /// Asks the second witness too, by a system call. dead() remembers the answer.
  bool ask() const override;
  /// Returns how a dead process ended, in words: "died".
  std::string how_it_left() const;

  Peer(std::shared_ptr<Mapping> page, Fd pidfd, pid_t pid)
      : page_(std::move(page)), pidfd_(std::move(pidfd)), pid_(pid) {}

 private:
  const std::atomic<uint32_t>& word() const {
    return reinterpret_cast<const LifePage*>(page_->data())->word;
  }

  std::shared_ptr<Mapping> page_;
  Fd pidfd_;
  pid_t pid_;
  mutable std::atomic<bool> exited_{false};
};

}  // namespace zero::local
