// SPDX-License-Identifier: Apache-2.0
// NCCL communicators. libzero never blocks inside NCCL. It polls each call until NCCL has accepted
// it, with a deadline and a check that can end the wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/keep.h"
#include "comm/comm.h"
#include "comm/link.h"
#include "comm/nccl/library.h"
#include "device/device.h"

namespace zero::nccl {

/// Holds a place into which NCCL writes a result. NCCL may write there until it has reported the
/// outcome, so a place that it may still use is never freed.
template <class Made>
class Slot {
 public:
  ~Slot() {
    if (!known_) keep_for_ever(std::move(place_));
  }
  Made* place() { return place_.get(); }
  /// Returns the current value, even if NCCL has not reported the outcome.
  Made look() const { return std::atomic_ref(*place_).load(std::memory_order_acquire); }
  Made take() {
    known_ = true;
    return *place_;
  }

 private:
  std::unique_ptr<Made> place_ = std::make_unique<Made>();
  bool known_ = false;
};

/// Returns NCCL's message for an error, with ZERO_ERR_PEER_DEAD if NCCL attributes it to another
/// rank, and otherwise with ZERO_ERR_COMM.
Status problem(const Library& library, Handle handle, std::string_view what, int outcome);

/// A mutex whose lock has a deadline, for std::unique_lock. It replaces std::timed_mutex, which
/// uses a POSIX call that some thread sanitizers do not know, so that they report false races.
class TimedMutex {
 public:
  bool try_lock() { return try_lock_for(std::chrono::milliseconds(0)); }

  bool try_lock_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    // Wait: the limit.
    if (!free_.wait_for(lock, limit, [this] { return !taken_; })) return false;
    taken_ = true;
    return true;
  }

  void unlock() {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    free_.notify_one();  // under the lock, because the next owner may destroy the mutex
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

/// A communicator in non-blocking mode, usable by any thread. NCCL gets one call at a time, on a
/// thread whose current device is the communicator's. NCCL restores the current device after a
/// call, so a thread without a device would get a context on device 0.
class Channel {
 public:
  /// `may_block` means that the communicator may be in blocking mode. Then a separate thread makes
  /// each call. If it is still inside NCCL at the limit, it and `run`'s arguments are abandoned.
  Channel(const Library& library, std::shared_ptr<Device> device, Handle handle,
          bool may_block = false)
      : library_(library), device_(std::move(device)), may_block_(may_block), handle_(handle) {}

  const std::shared_ptr<Device>& device() const { return device_; }

  /// Calls `call` with the communicator, and waits until NCCL has accepted it. Fails with
  /// ZERO_ERR_TIMEOUT after the limit. If it may block, a copy of `call` can outlive the caller.
  Status run(std::string_view what, const Bounds& bounds, const std::function<int(Handle)>& call);
  /// Waits until NCCL has accepted the previous call.
  Status await_ready(std::string_view what, const Bounds& bounds);
  /// Runs `call`, which is complete when it returns, as soon as NCCL is not busy with another call.
  /// Returns true if it succeeded, or if the communicator has been taken. Returns false if it
  /// failed, or could not start within `bound_ms`.
  bool run_alone(int64_t bound_ms, const std::function<int(Handle)>& call);
  /// Returns the asynchronous error of the communicator, as NCCL reports it now.
  Status error();

  /// Takes the communicator in order to end it. Later calls fail. Returns nullptr if it has been
  /// taken before, or if a call did not return within `bound_ms`.
  Handle take(int64_t bound_ms);

 private:
  int poll(Handle handle) const;
  Status run_here(std::string_view what, const Bounds& bounds,
                  const std::function<int(Handle)>& call);
  bool run_alone_here(int64_t bound_ms, const std::function<int(Handle)>& call);

  const Library& library_;
  const std::shared_ptr<Device> device_;
  const bool may_block_;
  std::atomic<int64_t> usual_ns_{0};  // how long NCCL took to accept the last call
  TimedMutex mutex_;
  Handle handle_;
};

/// The two communicators of a rank, so that opposite transfers need not wait for each other.
class Channels {
 public:
  Channels(const Library& library, std::unique_ptr<Channel> reduce, std::unique_ptr<Channel> gather)
      : library_(library), reduce_(std::move(reduce)), gather_(std::move(gather)) {}
  ~Channels() { (void)end(true); }

  Channel& reduce() { return *reduce_; }
  Channel& gather() { return *gather_; }

  /// Ends both communicators, once. Broken ones are aborted, so that their work on the device ends.
  /// Both are aborted at the same time, because each may wait for the other. Returns false if NCCL
  /// did not return in time. Threads and communicators are leaked then.
  bool end(bool broken) noexcept;

 private:
  bool end_both(bool broken);

  const Library& library_;
  const std::unique_ptr<Channel> reduce_, gather_;
  std::once_flag ended_;
};

/// Creates communicators for reductions and gathers from `parent`, among the ranks of one `color`.
/// Returns nullptr for a negative color. Collective on the parent. `rank` is the new rank.
Result<std::unique_ptr<Channels>> split(const Library& library, Channel& parent, int color,
                                        int rank, const CommOptions& options, const Bounds& bounds);
/// Creates the communicators of a new group.
Result<std::unique_ptr<Channels>> form(const Library& library,
                                       const std::shared_ptr<Device>& device, const UniqueId& id,
                                       int rank, int world, const CommOptions& options,
                                       const Bounds& bounds);

}  // namespace zero::nccl
