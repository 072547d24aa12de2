// SPDX-License-Identifier: Apache-2.0
// Ranks on devices of one host, and ways to block one device, for tests of what the others report.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "base/text.h"
#include "comm/create.h"
#include "support/chaos_device.h"
#include "support/emulated_launches.h"
#include "support/expect.h"
#include "support/ranks.h"
#include "zero.h"

namespace zero::test {

/// How ranks wait for each other in a step: streams wait for words at gates, hosts wait at gates,
/// or hosts wait for each transfer through their memory.
enum class Waits { streams, hosts, transfers };
inline constexpr Waits kWays[] = {Waits::streams, Waits::hosts, Waits::transfers};

inline std::shared_ptr<ChaosWorld> chaos(uint64_t seed, Waits waits = Waits::streams) {
  return ChaosWorld::create({.seed = seed,
                             .patience = INT64_MAX,
                             .emulate = emulate,
                             .words = waits != Waits::hosts,
                             .reaches = waits != Waits::transfers});
}

/// Blocks the default stream of a device until `word` is at least `value`.
class Stuck {
 public:
  Stuck(const std::shared_ptr<ChaosDevice>& device, uint32_t& word, uint32_t value)
      : aside_(make_stream(device).value()), comes_(make_event(device).value()) {
    const ChaosWork waits{[&word, value] { return std::atomic_ref(word).load() >= value; }, {}};
    static_cast<ChaosStream*>(aside_.handle())->queue("a device is stuck", [waits] {
      return waits;
    });
    EXPECT_TRUE(device->record(comes_.handle(), aside_.handle()).ok());
    EXPECT_TRUE(device->wait(nullptr, comes_.handle(), "the test's own").ok());
  }

 private:
  const Stream aside_;
  const Event comes_;
};

inline CommOptions limits(int64_t timeout_ms) {
  CommOptions options;
  options.timeout_ms = options.late_ms = timeout_ms;
  options.rendezvous_ms = 10'000;
  return options;
}

inline std::string said(zero_status status) {
  return status == ZERO_OK ? "ok" : text(zero_status_name(status), ": ", zero_last_error());
}

/// A parameter that is trained on one rank's device. The first error is kept, and no call is made
/// after it.
class Trained {
 public:
  Trained(const std::string& name, int rank, int world, const CommOptions& options,
          std::shared_ptr<ChaosDevice> device, int32_t nonfinite = ZERO_NONFINITE_IGNORE)
      : Trained(
            device, [&] { return create_local(name, rank, world, options, device); }, nonfinite) {}
  /// `join` returns its comm on that device.
  template <class Join>
  Trained(std::shared_ptr<ChaosDevice> device, const Join& join,
          int32_t nonfinite = ZERO_NONFINITE_IGNORE)
      : device_(std::move(device)) {
    const std::string memory(kCount * sizeof(float), '\1');
    for (DeviceMemory* const to : {&data_, &grad_}) {
      *to = DeviceMemory::allocate(device_, memory.size(), "a tensor").value();
      EXPECT_TRUE(device_->copy(nullptr, to->data(), memory.data(), memory.size()).ok());
    }
    EXPECT_TRUE(device_->world().run_all().ok());
    Result<std::shared_ptr<Comm>> seat = join();
    if (!seat.ok()) {
      worst_ = outcome(seat.failure());
      return;
    }
    comm_ = api::add_handle(std::move(*seat));
    auto optimizer = initialized<zero_options>();
    optimizer.nonfinite = nonfinite;
    auto param = initialized<zero_param>();
    param.name = "w";
    param.shape = &kCount;
    param.ndim = 1;
    param.data = data_.data();
    param.grad = grad_.data();
    then([&] { return zero_create(&optim_, comm_, &optimizer); });
    then([&] { return zero_register_params(optim_, nullptr, &param, 1, nullptr); });
  }
  ~Trained() {
    zero_free(optim_);
    zero_comm_free(comm_);
  }
  Trained(const Trained&) = delete;
  Trained& operator=(const Trained&) = delete;

  /// Queues a step, and does not check whether it is complete.
  void step() {
    then([&] { return zero_step(optim_, nullptr); });
  }
  void look() {
    then([&] {
      auto result = initialized<zero_result>();
      return zero_step_result(optim_, &result);
    });
  }
  void meet() {
    then([&] { return zero_comm_barrier(comm_); });
  }
  /// Returns true once all work of the device is complete.
  bool drained() const {
    for (int tries = 0; tries < 10'000; tries++) {
      if (device_->world().run_all().ok()) return true;
      usleep(1000);
    }
    return false;
  }
  const std::string& worst() const { return worst_; }
  int64_t host_waits() const {
    auto statistics = initialized<zero_statistics>();
    EXPECT_EQ(zero_stats(optim_, &statistics), ZERO_OK) << zero_last_error();
    return statistics.host_waits;
  }
  /// Returns true if the comm's failure states that the parameters of all ranks are from one step.
  bool consistent() const {
    auto failure = initialized<zero_failure>();
    EXPECT_EQ(zero_comm_failure(comm_, &failure), ZERO_OK) << zero_last_error();
    return failure.params_consistent != 0;
  }
  /// Returns memory of the comm with a gradient.
  void* take_arena(float value) {
    void* arena = nullptr;
    then([&] {
      return zero_arena_alloc(comm_, kCount * sizeof(float), ZERO_MEMORY_PER_RANK, &arena);
    });
    const std::vector<float> values(kCount, value);
    EXPECT_TRUE(device_->copy(nullptr, arena, values.data(), kCount * sizeof(float)).ok());
    return arena;
  }
  /// Takes a step with that gradient, whose arena is freed while the step may still read it.
  void step_from(void* arena) {
    auto options = initialized<zero_step_options>();
    options.grads = &arena;
    options.grad_count = 1;
    then([&] { return zero_step(optim_, &options); });
    EXPECT_EQ(zero_arena_free(arena), ZERO_OK) << zero_last_error();
  }
  void abort() { EXPECT_EQ(zero_comm_abort(comm_, "enough"), ZERO_OK) << zero_last_error(); }
  /// Sets a gradient to infinity. found() returns how many such elements of all ranks the step has
  /// found.
  void spoil() {
    const float infinite = INFINITY;
    EXPECT_TRUE(device_->copy(nullptr, grad_.data(), &infinite, sizeof infinite).ok());
  }
  int64_t found() {
    auto result = initialized<zero_result>();
    then([&] { return zero_step_result(optim_, &result); });
    return result.nonfinite;
  }
  std::string values() const {
    std::string bytes(data_.bytes(), '\0');
    EXPECT_TRUE(device_->copy(nullptr, bytes.data(), data_.data(), bytes.size()).ok());
    return bytes;
  }

 private:
  static constexpr int64_t kCount = 2000;

  template <class Body>
  void then(const Body& body) {
    if (worst_ == "ok") worst_ = said(body());
  }

  const std::shared_ptr<ChaosDevice> device_;
  DeviceMemory data_, grad_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  std::string worst_ = "ok";
};

/// Runs live(trained, rank) on threads with these devices. Returns the first error of each rank.
template <class Live>
std::vector<std::string> run_trained(const std::vector<std::shared_ptr<ChaosDevice>>& devices,
                                     int64_t timeout_ms, const Live& live,
                                     int32_t nonfinite = ZERO_NONFINITE_IGNORE) {
  const std::string name = unique_name();
  const auto world = static_cast<int>(devices.size());
  return run_sound_ranks(RankKind::threads, world, [&](int rank) {
    Trained trained(name, rank, world, limits(timeout_ms), devices[static_cast<size_t>(rank)],
                    nonfinite);
    live(trained, rank);
    return trained.worst();
  });
}

/// Devices of one world, or of separate worlds, in which a wait for one runs no work of the other.
inline std::vector<std::shared_ptr<ChaosDevice>> two_devices(
    const std::shared_ptr<ChaosWorld>& world) {
  return {world->make_device(0), world->make_device(1)};
}
inline std::vector<std::shared_ptr<ChaosDevice>> two_devices_apart(Waits waits = Waits::streams) {
  return {chaos(1, waits)->make_device(), chaos(2, waits)->make_device()};
}

}  // namespace zero::test
