// SPDX-License-Identifier: Apache-2.0
// Ranks on devices of one host, and what keeps one of them: for tests of what the others see then.
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

/// Who waits for the other ranks in a step: at gates the streams, for words, or the hosts; or the
/// hosts for each transfer through their memory.
enum class Waits { streams, hosts, transfers };
inline constexpr Waits kWays[] = {Waits::streams, Waits::hosts, Waits::transfers};

inline std::shared_ptr<ChaosWorld> chaos(uint64_t seed, Waits waits = Waits::streams) {
  return ChaosWorld::create({.seed = seed,
                             .patience = INT64_MAX,
                             .emulate = emulate,
                             .words = waits != Waits::hosts,
                             .reaches = waits != Waits::transfers});
}

/// Until `word` is `value` or more, the default stream of a device does nothing.
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

/// A parameter that is trained on one rank's device; what goes wrong is kept, and ends what
/// follows.
class Trained {
 public:
  Trained(const std::string& name, int rank, int world, const CommOptions& options,
          std::shared_ptr<ChaosDevice> device, int32_t nonfinite = ZERO_NONFINITE_IGNORE)
      : Trained(
            device, [&] { return create_local(name, rank, world, options, device); }, nonfinite) {}
  /// `join` finds its seat, on that device.
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

  /// Queued, and nobody has looked whether it is done.
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
  /// All that the device holds is done, sooner or later.
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
  /// Whether the parameters of all ranks are those of one step, as the comm's failure says.
  bool consistent() const {
    auto failure = initialized<zero_failure>();
    EXPECT_EQ(zero_comm_failure(comm_, &failure), ZERO_OK) << zero_last_error();
    return failure.params_consistent != 0;
  }
  /// Memory of the comm for a gradient.
  void* take_arena(float value) {
    void* arena = nullptr;
    then([&] {
      return zero_arena_alloc(comm_, kCount * sizeof(float), ZERO_MEMORY_PER_RANK, &arena);
    });
    const std::vector<float> values(kCount, value);
    EXPECT_TRUE(device_->copy(nullptr, arena, values.data(), kCount * sizeof(float)).ok());
    return arena;
  }
  /// A step by that gradient, which is given up while the step may still read it.
  void step_from(void* arena) {
    auto options = initialized<zero_step_options>();
    options.grads = &arena;
    options.grad_count = 1;
    then([&] { return zero_step(optim_, &options); });
    EXPECT_EQ(zero_arena_free(arena), ZERO_OK) << zero_last_error();
  }
  void abort() { EXPECT_EQ(zero_comm_abort(comm_, "enough"), ZERO_OK) << zero_last_error(); }
  /// A gradient that is not finite, and how many of all ranks the step found.
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

/// live(trained, rank) on ranks that are threads, with these devices; what went wrong with each.
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

/// Of one world, or of worlds apart: who waits for one runs nothing of the other.
inline std::vector<std::shared_ptr<ChaosDevice>> two_devices(
    const std::shared_ptr<ChaosWorld>& world) {
  return {world->make_device(0), world->make_device(1)};
}
inline std::vector<std::shared_ptr<ChaosDevice>> two_devices_apart(Waits waits = Waits::streams) {
  return {chaos(1, waits)->make_device(), chaos(2, waits)->make_device()};
}

}  // namespace zero::test
