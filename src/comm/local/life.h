// SPDX-License-Identifier: Apache-2.0
// Detects which processes are alive. Each process has a page that other processes map read-only. It
// contains a robust futex held by a library thread, which the kernel marks when the process dies.
// The kernel does so before it frees the memory of the process, so a large process causes no delay.
// A pidfd is the second indicator. It is the only one on systems without robust futexes, such as
// emulators and some sandboxes.
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

/// A reference to this process's life page. The page and its thread exist while there is a
/// reference. Each rank of a comm holds one.
class Life {
 public:
  static Result<Life> begin();
  Life(Life&& other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
  Life& operator=(Life&&) = delete;
  ~Life();

  /// Return descriptors to send to other processes: the page, and a pidfd of this process, which is
  /// invalid if the system has none.
  int page() const;
  int pidfd() const;

 private:
  explicit Life(pid_t pid) : pid_(pid) {}
  pid_t pid_;  // the process that owns the reference; a forked child does not
};

/// The content of the life page of a process.
struct LifePage {
  std::atomic<uint32_t> word;  // thread id while alive, FUTEX_OWNER_DIED, or 0 after leaving
};
inline constexpr size_t kLifePageBytes = 4096;

/// Another process that has ranks. All comms and ranks that watch a process share one object.
class Peer final : public Witness {
 public:
  /// Checks and maps a received page. `pidfd` may be invalid.
  static Result<std::shared_ptr<Peer>> meet(int page, Fd pidfd, pid_t pid);

  pid_t pid() const { return pid_; }

  /// Returns true if the kernel has reported the death. Everything that the process stored before
  /// is visible then. Costs two loads.
  bool dead() const {
    return (word().load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0 ||
           exited_.load(std::memory_order_acquire);
  }
  /// Also checks the pidfd, which costs a system call. dead() remembers the result.
  bool ask() const override;
  /// Describes how a dead process ended, such as "died".
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
