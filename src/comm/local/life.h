// SPDX-License-Identifier: Apache-2.0
// Who is alive. Each process has a page that others map read-only, with a word that the kernel
// marks when the process dies: a robust futex of a library thread. It is marked before the dead
// process's memory is freed, so its size does not matter. A pidfd is the second witness.
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

/// A share in this process's life: the page and its thread stand while there is one. Seats hold one
/// each.
class Life {
 public:
  static Result<Life> begin();
  Life(Life&& other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
  Life& operator=(Life&&) = delete;
  ~Life();

  /// The page, to be sent to other processes; and a pidfd of this one, invalid where there are
  /// none.
  int page() const;
  int pidfd() const;

 private:
  explicit Life(pid_t pid) : pid_(pid) {}
  pid_t pid_;  // that holds the share: a forked child does not
};

/// What another process's page (or this one's) holds.
struct LifePage {
  std::atomic<uint32_t> word;  // thread id: alive. FUTEX_OWNER_DIED: dead. 0: its last seat is gone
};
inline constexpr size_t kLifePageBytes = 4096;

/// A process that has ranks, seen from this one; one object for all comms and ranks that watch it.
class Peer final : public Witness {
 public:
  /// Check and map a received page. `pidfd` may be invalid.
  static Result<std::shared_ptr<Peer>> meet(int page, Fd pidfd, pid_t pid);

  pid_t pid() const { return pid_; }

  /// The kernel has said so. One load.
  bool dead() const {
    return (word().load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0 ||
           exited_.load(std::memory_order_relaxed);
  }
  /// Ask the second witness too. A system call; dead() remembers the answer.
  bool ask() const override;
  /// How a dead one ended, in words: "died".
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
