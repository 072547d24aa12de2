// SPDX-License-Identifier: Apache-2.0
// Communicators of NCCL. libzero never waits inside NCCL: it polls each call until NCCL has taken
// it in, under a deadline and a check that may end the wait.
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

/// The place where NCCL puts something that it makes. NCCL may write there until it has told how
/// that ended, so a place that it may still know is left to it.
template <class Made>
class Slot {
 public:
  ~Slot() {
    if (!known_) keep_for_ever(std::move(place_));
  }
  Made* place() { return place_.get(); }
  /// Returns what NCCL has put there by now, though it may not have told yet.
  Made look() const { return std::atomic_ref(*place_).load(std::memory_order_acquire); }
  Made take() {
    known_ = true;
    return *place_;
  }

 private:
  std::unique_ptr<Made> place_ = std::make_unique<Made>();
  bool known_ = false;
};

/// Returns NCCL's own words for what went wrong: with ZERO_ERR_PEER_DEAD if NCCL puts it down to
/// another rank, otherwise with ZERO_ERR_COMM.
Status problem(const Library& library, Handle handle, std::string_view what, int outcome);

/// A mutex with a deadline for waits, for std::unique_lock. std::timed_mutex would do, but it waits
/// by a call of POSIX that some thread sanitizers do not know: they take what follows for a race.
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
    free_.notify_one();  // within: whoever takes it next may end it
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

/// One communicator in non-blocking mode. Any thread may use it. NCCL gets one call at a time, on a
/// thread whose current device is the communicator's, because NCCL restores the device that it
/// finds, and a thread without one would get a context on device 0.
class Channel {
 public:
  /// `may_block`: the communicator is not known to be in that mode. Then a thread of its own makes
  /// each call. If it is still inside NCCL at the limit, it is left behind, with what `run` was
  /// given.
  Channel(const Library& library, std::shared_ptr<Device> device, Handle handle,
          bool may_block = false)
      : library_(library), device_(std::move(device)), may_block_(may_block), handle_(handle) {}

  const std::shared_ptr<Device>& device() const { return device_; }

  /// Makes `call` with the communicator, and waits until that has taken it in. Fails with
  /// ZERO_ERR_TIMEOUT after the limit. If it may block, a copy of `call` may outlive all that the
  /// caller has.
  Status run(std::string_view what, const Bounds& bounds, const std::function<int(Handle)>& call);
  /// Waits until it has taken in what was begun before.
  Status await_ready(std::string_view what, const Bounds& bounds);
  /// Makes `call`, which is done when it returns, once nothing else is being taken in. Returns true
  /// if it succeeded, or if the communicator has been taken; false if it failed, or could not begin
  /// within `bound_ms`.
  bool run_alone(int64_t bound_ms, const std::function<int(Handle)>& call);
  /// Returns what has failed since, as NCCL tells it now.
  Status error();

  /// Takes the communicator, to end it; later calls fail. Returns nullptr if it has been taken, or
  /// if a call did not come back within `bound_ms`.
  Handle take(int64_t bound_ms);

 private:
  int poll(Handle handle) const;
  Status run_here(std::string_view what, const Bounds& bounds,
                  const std::function<int(Handle)>& call);
  bool run_alone_here(int64_t bound_ms, const std::function<int(Handle)>& call);

  const Library& library_;
  const std::shared_ptr<Device> device_;
  const bool may_block_;
  std::atomic<int64_t> usual_ns_{0};  // until the last call was taken in
  TimedMutex mutex_;
  Handle handle_;
};

/// The two communicators of a seat, so that transfers in opposite directions need not wait for each
/// other.
class Channels {
 public:
  Channels(const Library& library, std::unique_ptr<Channel> reduce, std::unique_ptr<Channel> gather)
      : library_(library), reduce_(std::move(reduce)), gather_(std::move(gather)) {}
  ~Channels() { (void)end(true); }

  Channel& reduce() { return *reduce_; }
  Channel& gather() { return *gather_; }

  /// Ends both, once. Broken ones are aborted, so that their work on the device ends: both at the
  /// same time, because each may wait for the other. Returns false if NCCL did not come back in
  /// time; then threads and communicators are left behind.
  bool end(bool broken) noexcept;

 private:
  bool end_both(bool broken);

  const Library& library_;
  const std::unique_ptr<Channel> reduce_, gather_;
  std::once_flag ended_;
};

/// Makes communicators from `parent`, for reductions and for gathers, among the ranks of one
/// `color`. Returns nullptr for a negative one. Collective on the parent; `rank` is the place among
/// the new ranks.
Result<std::unique_ptr<Channels>> split(const Library& library, Channel& parent, int color,
                                        int rank, const CommOptions& options, const Bounds& bounds);
/// Makes the communicators of a new group.
Result<std::unique_ptr<Channels>> form(const Library& library,
                                       const std::shared_ptr<Device>& device, const UniqueId& id,
                                       int rank, int world, const CommOptions& options,
                                       const Bounds& bounds);

}  // namespace zero::nccl
