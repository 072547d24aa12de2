// SPDX-License-Identifier: Apache-2.0
// Seats of nccl comms over the fake library, for tests of how they use NCCL.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "comm/nccl/nccl.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"
#include "support/statuses.h"

namespace zero::test {

using Seat = std::shared_ptr<Comm>;

/// Runs body(seat, rank) on every rank of comm `number`.
inline void run(const NcclRanks& ranks, int32_t world,
                const std::function<void(const Seat& seat, int rank)>& body,
                const CommOptions& options = {}, int number = 0) {
  run_sound_ranks(RankKind::threads, world, [&](int rank) {
    if (const Seat seat = made(ranks.join(rank, options, number))) body(seat, rank);
    return "";
  });
}

/// A stream of a seat's device, and memory that is written and read through it.
class Queue {
 public:
  explicit Queue(Device& device) : device_(device) {
    stream_ = *device.make_stream();
    event_ = *device.make_event();
  }
  ~Queue() {
    for (void* const memory : memory_) device_.release(memory);
    for (void* const memory : host_) device_.release_host(memory);
    device_.free_event(event_);
    device_.free_stream(stream_);
  }
  void* stream() const { return stream_; }

  template <class T>
  T* put(const std::vector<T>& values) {
    const size_t bytes = std::max<size_t>(values.size() * sizeof(T), 1);
    void* const host = *device_.allocate_host(bytes, "values");
    host_.push_back(host);
    memory_.push_back(*device_.allocate(bytes, "values"));
    if (!values.empty()) memcpy(host, values.data(), values.size() * sizeof(T));
    expect_ok(device_.copy(stream_, memory_.back(), host, bytes));
    return static_cast<T*>(memory_.back());
  }

  template <class T>
  std::vector<T> get(const T* data, size_t count) {
    const size_t bytes = std::max<size_t>(count * sizeof(T), 1);
    void* const host = *device_.allocate_host(bytes, "values");
    host_.push_back(host);
    expect_ok(device_.copy(stream_, host, data, bytes));
    expect_ok(wait());
    const T* const values = static_cast<const T*>(host);
    return std::vector<T>(values, values + count);
  }

  Status wait(int64_t timeout_ms = 20'000, const std::function<Status()>& stop = {}) {
    ZERO_TRY(device_.record(event_, stream_));
    return await(device_, event_, timeout_ms, "the test's work", stop);
  }

 private:
  Device& device_;
  void* stream_;
  void* event_;
  std::vector<void*> memory_, host_;
};

inline void abort(Comm& comm) {
  Failure cause;
  cause.code = ZERO_ERR_ABORTED;
  cause.text = "enough";
  comm.abort(cause);
}

/// Returns a claimed arena, allocated in a separate call.
inline std::shared_ptr<Arena> allocate(const Seat& seat, size_t bytes) {
  Result<Call> call = seat->begin(Operation::arena_alloc);
  const std::shared_ptr<Arena> arena = made(call->allocate(bytes, ZERO_MEMORY_PER_RANK));
  claim_arena(arena);
  return arena;
}

}  // namespace zero::test
