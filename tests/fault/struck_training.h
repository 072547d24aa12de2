// SPDX-License-Identifier: Apache-2.0
// A whole training run, in which one rank may be struck at a numbered point.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>

#include "base/hash.h"
#include "state/temporary.h"
#include "support/expect.h"
#include "support/points.h"
#include "support/scratch.h"
#include "support/vector_param.h"
#include "zero.h"

namespace zero::test {

constexpr int kMostRanks = 9;
constexpr int64_t kDeadlineMs = 600;

/// What ranks report to the test about the failed call, in memory that forked ranks share.
struct Told {
  int64_t after_ms[kMostRanks];  // since the rank began
  int64_t at_ms[kMostRanks];
  // The results of zero_comm_failure then.
  int rank[kMostRanks];
  int consistent[kMostRanks];
  int64_t step[kMostRanks];
  uint64_t params[kMostRanks];  // a hash of their values then
  char phase[kMostRanks][32];
};
inline Told* told = nullptr;

/// Where points begin to count.
enum class From { beginning, joined, first_step };

struct Strike {
  int rank = -1;
  Point point = {};
  void (*action)() = nullptr;
  From from = From::beginning;
  double max_grad_norm = 0;
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t instances = 1;
  bool endless = false;  // repeats the last step for ever
  Points points = Points::numbered;
};
inline Strike strike;

/// A custom rule.
inline zero_status descend(void*, const zero_update* update) {
  auto* const values = static_cast<float*>(update->values);
  const auto* const gradient = static_cast<const float*>(update->gradient);
  for (int64_t i = 0; i < update->count; i++) values[i] -= gradient[i];
  return ZERO_OK;
}

/// Parameters and gradients of one rank.
struct Model {
  void* data = nullptr;
  void* grads = nullptr;
  float foreign[300] = {}, foreign_grad[300] = {};
  float small[30] = {}, large[70'000] = {};
};

/// Creates a rank's comm.
using Join = std::function<zero_status(int rank, int64_t timeout_ms, zero_comm** comm)>;

/// The run. One function makes all calls and names them, so that a failed call is known by its
/// position.
class TrainingRun {
 public:
  TrainingRun(int rank, int world, const Join& join, std::string directory)
      : rank_(rank), world_(world), join_(join), directory_(std::move(directory)) {}
  ~TrainingRun() {
    zero_free(optim_);
    zero_arena_free(model_.data);
    zero_arena_free(model_.grads);
    zero_comm_free(comm_);
  }

  /// Returns "done", or "<call>|<status>|<text>".
  std::string go() {
    if (strike.from == From::beginning) await_strike();
    const int64_t timeout_ms = strike.action == stop ? kDeadlineMs : 20'000;
    if (failed("create", join_(rank_, timeout_ms, &comm_))) return out_;
    if (strike.from == From::joined) await_strike();
    const int32_t kind = strike.instances > 1 ? ZERO_MEMORY_PER_RANK : ZERO_MEMORY_SHARED;
    if (failed("arena", zero_arena_alloc(comm_, 40000, kind, &model_.data))) return out_;
    if (failed("arena", zero_arena_alloc(comm_, 40000, ZERO_MEMORY_PER_RANK, &model_.grads)))
      return out_;
    if (!build()) return out_;
    if (failed("broadcast", zero_broadcast_params(optim_, 0, nullptr))) return out_;
    if (failed("buffers", zero_broadcast_buffers(optim_, world_ - 1, nullptr))) return out_;
    if (strike.from == From::first_step) await_strike();
    if (failed("step", zero_step(optim_, nullptr))) return out_;
    if (failed("reduce", zero_reduce_grads(optim_, nullptr, 0, 0, nullptr))) return out_;
    if (failed("clip", zero_clip_grad_norm(optim_, nullptr, 0, 0.1, 2, nullptr, nullptr)))
      return out_;
    if (failed("step", zero_step(optim_, nullptr))) return out_;
    if (failed("save", zero_state_save(optim_, directory_.c_str(), nullptr))) return out_;
    if (failed("load", zero_state_load(optim_, directory_.c_str(), nullptr))) return out_;
    do {
      if (failed("step", zero_step(optim_, nullptr))) return out_;
    } while (strike.endless);
    return "done";
  }

 private:
  void await_strike() const {
    watch_points(strike.point, rank_ == strike.rank ? strike.action : nullptr, strike.points);
  }

  bool failed(const char* call, zero_status status) {
    if (status == ZERO_OK) return false;
    told->after_ms[rank_] = now_ms() - began_ms_;
    told->at_ms[rank_] = now_ms();
    Clock::note_told(rank_);
    out_ = std::string(call) + "|" + zero_status_name(status) + "|" + zero_last_error();
    auto failure = initialized<zero_failure>();
    if (comm_ != nullptr) zero_comm_failure(comm_, &failure);
    told->rank[rank_] = failure.rank;
    told->consistent[rank_] = failure.params_consistent;
    told->step[rank_] = failure.step;
    if (model_.data != nullptr) told->params[rank_] = hash_params();
    std::memcpy(told->phase[rank_], failure.phase, sizeof failure.phase);
    return true;
  }

  bool build() {
    auto options = initialized<zero_options>();
    options.max_grad_norm = strike.max_grad_norm;
    options.optimizer = strike.optimizer;
    options.instances = strike.instances;
    auto custom = initialized<zero_custom_optimizer>();
    custom.name = "descend";
    custom.update = descend;
    if (strike.optimizer == ZERO_OPTIMIZER_CUSTOM) options.custom = &custom;
    if (failed("create", zero_create(&optim_, comm_, &options))) return false;
    const std::span data(static_cast<float*>(model_.data), 7501);
    const std::span grads(static_cast<float*>(model_.grads), data.size());
    for (const std::span<float> all : {grads, std::span<float>(model_.foreign_grad)})
      std::fill(all.begin(), all.end(), 0.25f);
    if (failed("register",
               register_vectors(optim_, {{"a", data.first(5000), grads.first(5000)},
                                         {"b", data.subspan(5000, 1), grads.subspan(5000, 1)},
                                         {"foreign", model_.foreign, model_.foreign_grad},
                                         {"d", data.last(2500), grads.last(2500)}})))
      return false;
    return !failed("register", register_buffers(data.data() + data.size()));
  }

  /// Registers a shared one, a foreign one that is packed with it, and one that travels alone.
  zero_status register_buffers(float* shared) {
    const int64_t sizes[] = {20, 30, 70'000};
    zero_buffer buffers[3];
    const char* names[] = {"shared", "small", "large"};
    float* const memory[] = {shared, model_.small, model_.large};
    for (int i = 0; i < 3; i++) {
      ZERO_INIT(buffers[i]);
      buffers[i].name = names[i];
      buffers[i].shape = &sizes[i];
      buffers[i].ndim = 1;
      buffers[i].data = memory[i];
    }
    return zero_register_buffers(optim_, buffers, 3);
  }

  uint64_t hash_params() const {
    const auto memory_of = [](const void* data, size_t bytes) {
      return std::span(static_cast<const std::byte*>(data), bytes);
    };
    return hash64(memory_of(model_.data, 30'004)) ^
           hash64(memory_of(model_.foreign, sizeof model_.foreign));
  }

  const int64_t began_ms_ = now_ms();
  const int rank_, world_;
  const Join join_;
  std::string directory_, out_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  Model model_;
};

class StruckTraining : public ::testing::Test {
 protected:
  void SetUp() override { told = memory_.as<Told>(); }

  auto make_run(int world) {
    const std::string name = text("fault-", getpid(), "-", next_++);
    const std::string directory = scratch_ / text("checkpoint-", next_);
    const Join join = prepare_join(world, name);
    return [=](int rank) { return TrainingRun(rank, world, join, directory).go(); };
  }
  /// Called before the ranks are forked. By default they are on one host.
  virtual Join prepare_join(int world, const std::string& name) {
    return [=](int rank, int64_t timeout_ms, zero_comm** comm) {
      auto options = initialized<zero_comm_options>();
      options.timeout_ms = options.late_ms = timeout_ms;
      options.rendezvous_ms = 800;
      return zero_comm_create_local(comm, name.c_str(), rank, world, &options);
    };
  }
  std::vector<RankEnd> run(int world, const Strike& what) {
    strike = what;
    return run_struck_ranks(world, make_run(world));
  }
  PointsOfRanks points_of(int world, From from = From::beginning, Points which = Points::numbered) {
    strike = {.from = from, .points = which};
    const PointsOfRanks points = points_of_ranks(world, [run = make_run(world)](int rank) {
      std::string said = run(rank);
      EXPECT_EQ(said, "done");
      return said;
    });
    clean();
    return points;
  }

  /// Counts Unix sockets with names of this test that exist in the system.
  static int sockets() {
    std::ifstream list("/proc/net/unix");
    const std::string mine = "/fault-" + std::to_string(getpid()) + "-";
    int found = 0;
    for (std::string line; std::getline(list, line);)
      found += line.find(mine) != std::string::npos ? 1 : 0;
    return found;
  }

  /// Checks what a killed save has left, which the next save removes: its temporary directory and,
  /// if it was taking the final name, the lock on that name.
  void expect_little_left() const {
    const std::string lock = temporary_name(hash128(bytes_of(text("checkpoint-", next_))));
    int unfinished = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
      const std::string name = entry.path().filename();
      if (is_temporary_name(name) && name != lock) unfinished++;
    }
    EXPECT_LE(unfinished, 1);
  }

  void clean() {
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      std::filesystem::remove_all(entry.path());
  }

  const Scratch scratch_;
  const SharedMemory memory_{sizeof(Told)};
  int next_ = 0;
};

}  // namespace zero::test
