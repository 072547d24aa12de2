// SPDX-License-Identifier: Apache-2.0
// A rank is killed, or stopped, at every numbered point of a whole training run: rendezvous,
// arenas, registration, broadcasts, step, reduce, clip, save, load. The others return, say who, and
// leave nothing.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "support/expect.h"
#include "support/points.h"
#include "support/scratch.h"
#include "support/vector_param.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kMostRanks = 4;
constexpr int64_t kDeadlineMs = 400;

/// What ranks tell the test, in memory that forked ranks share: of the call that failed.
struct Board {
  int64_t after_ms[kMostRanks];
  // What zero_comm_failure says then.
  int consistent[kMostRanks];
  char phase[kMostRanks][32];
};
Board* board = nullptr;

struct Strike {
  int rank = -1;
  Point point = {};
  void (*action)() = nullptr;
  bool in_first_step = false;  // the first time that it passes the point there
  double max_grad_norm = 0;
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t instances = 1;
};
Strike strike;

/// A rule of the caller's own.
zero_status descend(void*, const zero_update* update) {
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

/// The run: each call's name, made by one function so that a failing call is known by its place.
class TrainingRun {
 public:
  TrainingRun(int rank, int world, std::string name, std::string directory)
      : rank_(rank), world_(world), name_(std::move(name)), directory_(std::move(directory)) {}
  ~TrainingRun() {
    zero_free(optim_);
    zero_arena_free(model_.data);
    zero_arena_free(model_.grads);
    zero_comm_free(comm_);
  }

  /// "done", or "<call>|<status>|<text>".
  std::string go() {
    auto options = initialized<zero_comm_options>();
    options.timeout_ms = options.late_ms = strike.action == stop ? kDeadlineMs : 20'000;
    options.rendezvous_ms = 800;
    if (!strike.in_first_step) await_strike();
    if (failed("create", zero_comm_create_local(&comm_, name_.c_str(), rank_, world_, &options)))
      return out_;
    const int32_t kind = strike.instances > 1 ? ZERO_MEMORY_PER_RANK : ZERO_MEMORY_SHARED;
    if (failed("arena", zero_arena_alloc(comm_, 40000, kind, &model_.data))) return out_;
    if (failed("arena", zero_arena_alloc(comm_, 40000, ZERO_MEMORY_PER_RANK, &model_.grads)))
      return out_;
    if (!build()) return out_;
    if (failed("broadcast", zero_broadcast_params(optim_, 0, nullptr))) return out_;
    if (failed("buffers", zero_broadcast_buffers(optim_, world_ - 1, nullptr))) return out_;
    if (strike.in_first_step) await_strike();
    if (failed("step", zero_step(optim_, nullptr))) return out_;
    if (failed("reduce", zero_reduce_grads(optim_, nullptr, 0, 0, nullptr))) return out_;
    if (failed("clip", zero_clip_grad_norm(optim_, nullptr, 0, 0.1, 2, nullptr, nullptr)))
      return out_;
    if (failed("step", zero_step(optim_, nullptr))) return out_;
    if (failed("save", zero_state_save(optim_, directory_.c_str(), nullptr))) return out_;
    if (failed("load", zero_state_load(optim_, directory_.c_str(), nullptr))) return out_;
    if (failed("step", zero_step(optim_, nullptr))) return out_;
    return "done";
  }

 private:
  void await_strike() const {
    watch_points(strike.point, rank_ == strike.rank ? strike.action : nullptr);
  }

  bool failed(const char* call, zero_status status) {
    if (status == ZERO_OK) return false;
    board->after_ms[rank_] = now_ms() - began_ms_;
    Clock::note_told(rank_);
    out_ = std::string(call) + "|" + zero_status_name(status) + "|" + zero_last_error();
    auto failure = initialized<zero_failure>();
    if (comm_ != nullptr) zero_comm_failure(comm_, &failure);
    board->consistent[rank_] = failure.params_consistent;
    std::memcpy(board->phase[rank_], failure.phase, sizeof failure.phase);
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

  /// One shared, one foreign and packed with it, and one that goes alone.
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

  const int64_t began_ms_ = now_ms();
  int rank_, world_;
  std::string name_, directory_, out_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  Model model_;
};

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override { board = memory_.as<Board>(); }

  auto make_run(int world) {
    const std::string name = text("fault-", getpid(), "-", next_++);
    const std::string directory = scratch_ / text("checkpoint-", next_);
    return [=](int rank) { return TrainingRun(rank, world, name, directory).go(); };
  }
  std::vector<RankEnd> run(int world, const Strike& what) {
    strike = what;
    return run_struck_ranks(world, make_run(world));
  }
  PointsOfRanks points_of(int world) {
    strike = {};
    const PointsOfRanks points = points_of_ranks(world, [run = make_run(world)](int rank) {
      std::string said = run(rank);
      EXPECT_EQ(said, "done");
      return said;
    });
    clean();
    return points;
  }

  /// Unix sockets of this test's names that exist in the system.
  static int sockets() {
    std::ifstream list("/proc/net/unix");
    const std::string mine = "/fault-" + std::to_string(getpid()) + "-";
    int found = 0;
    for (std::string line; std::getline(list, line);)
      found += line.find(mine) != std::string::npos ? 1 : 0;
    return found;
  }

  int directories_left() const {
    int found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
      if (entry.path().filename().string().rfind(".tmp-", 0) == 0) found++;
    }
    return found;
  }

  void clean() {
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      std::filesystem::remove_all(entry.path());
  }

  const Scratch scratch_;
  const SharedMemory memory_{sizeof(Board)};
  int next_ = 0;
};

bool is_forming(const std::string& result) { return result.rfind("create|", 0) == 0; }

/// The survivor's sentence names the victim and has the right code.
void expect_told(const std::string& result) {
  const std::string code = is_forming(result)      ? "|ZERO_ERR_RENDEZVOUS|"
                           : strike.action == stop ? "|ZERO_ERR_TIMEOUT|"
                                                   : "|ZERO_ERR_PEER_DEAD|";
  EXPECT_TRUE(contains(result, code, text("rank ", strike.rank)));
}

/// Parameters are in question where the comm broke while some rank was publishing, and only there.
void expect_consistency(const std::string& result, int rank) {
  const std::string phase = board->phase[rank];
  const bool broadcasting = phase.rfind("zero_broadcast_params: ", 0) == 0;
  const bool publishing = phase.rfind("zero_step: publish", 0) == 0 ||
                          (broadcasting && strike.point.name == "broadcast.param");
  if (broadcasting && !publishing) return;  // either
  EXPECT_EQ(board->consistent[rank], publishing ? 0 : 1)
      << "broken in '" << phase << "': " << result;
}

TEST_F(FaultTest, a_rank_killed_at_any_point_is_named_by_all_others_at_once) {
  for (int world = 2; world <= kMostRanks; world++) {
    for_each_victim(points_of(world), nightly_run() ? 1 : 7, [&](const Victim& victim) {
      const auto ends = run(world, {victim.rank, victim.point, die});
      for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
        if (result == "done") return;  // it no longer needed the victim
        expect_told(result);
        if (is_forming(result)) return;
        expect_consistency(result, rank);
        EXPECT_LE(Clock::slept_ms(rank), 100) << result;
      });
      EXPECT_LE(directories_left(), 1);
      EXPECT_EQ(sockets(), 0);
      clean();
    });
  }
}

/// A point of a step, and whether ranks publish by then; those that have passed the last vote do.
struct StepPoint {
  const char* name;
  bool publishing;
  bool done = false;  // the step is complete: the survivors fail in a later call
};

constexpr StepPoint kOnePass[] = {
    {"enter.begin", false},  {"enter.voted", false},   {"ready.before", false},
    {"ready.after", true},   {"apply.begin", true},    {"apply.done", true},
    {"publish.begin", true}, {"publish.pulled", true}, {"publish.done", false, true}};
constexpr StepPoint kClips[] = {
    {"enter.begin", false},  {"ready.before", false},      {"ready.after", false},
    {"gather.begin", false}, {"gather.reduced", false},    {"vote.before", false},
    {"vote.after", true},    {"apply.begin", true},        {"apply.done", true},
    {"publish.begin", true}, {"publish.done", false, true}};

constexpr StepPoint kHasNorms[] = {{"ready.after", true},
                                   {"apply.begin", true},
                                   {"trust.before", true},
                                   {"trust.after", true},
                                   {"publish.begin", true}};

constexpr StepPoint kOwnRule[] = {{"vote.after", false},   {"update.begin", false},
                                  {"update.done", false},  {"update.voted", true},
                                  {"apply.begin", true},   {"apply.done", true},
                                  {"publish.begin", true}, {"publish.done", false, true}};

std::vector<Point> points_named(std::span<const StepPoint> points) {
  std::vector<Point> named;
  for (const StepPoint& point : points) named.push_back({point.name, 1});
  return named;
}

TEST_F(FaultTest, a_death_tells_every_survivor_whether_parameters_were_being_published) {
  const struct {
    std::span<const StepPoint> points;
    double max_grad_norm;
    int32_t optimizer;
  } steps[] = {{kOnePass, 0, ZERO_OPTIMIZER_ADAMW},
               {kClips, 0.5, ZERO_OPTIMIZER_ADAMW},
               {kHasNorms, 0, ZERO_OPTIMIZER_LAMB},
               {kOwnRule, 0, ZERO_OPTIMIZER_CUSTOM}};
  for (int world = 2; world <= 3; world++) {
    for (const auto& step : steps) {
      for_each_victim(
          PointsOfRanks(static_cast<size_t>(world), points_named(step.points)), 1,
          [&](const Victim& victim) {
            const StepPoint& point = step.points[step.points.size() - victim.left];
            const auto ends = run(
                world, {victim.rank, victim.point, die, true, step.max_grad_norm, step.optimizer});
            EXPECT_EQ(ends[static_cast<size_t>(victim.rank)].signal, SIGKILL);
            for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
              EXPECT_EQ(result.rfind(point.done ? "reduce|" : "step|", 0), 0u) << result;
              EXPECT_EQ(board->consistent[rank], point.publishing ? 0 : 1) << result;
            });
            clean();
          });
    }
  }
}

TEST_F(FaultTest, a_copy_that_is_killed_is_named_by_ranks_of_all_instances) {
  PointsOfRanks points(4);
  for (const char* const name : {"gather.begin", "vote.before", "apply.begin", "apply.done",
                                 "publish.begin", "save.begin", "save.written", "load.read"})
    points[3].push_back({name, 1});
  for_each_victim(points, 1, [&](const Victim& victim) {
    Strike of{victim.rank, victim.point, die};
    of.max_grad_norm = 0.5;
    of.instances = 2;
    const auto ends = run(4, of);
    EXPECT_EQ(ends[3].signal, SIGKILL);
    for_each_survivor(ends, victim.rank, [&](int rank, const std::string& result) {
      expect_told(result);
      expect_consistency(result, rank);
    });
    EXPECT_LE(directories_left(), 1);
    clean();
  });
}

TEST_F(FaultTest, a_rank_stopped_at_any_point_is_named_at_the_deadline) {
  for (int world = 2; world <= kMostRanks; world++) {
    for_each_victim(points_of(world), nightly_run() ? 1 : 127, [&](const Victim& victim) {
      const auto ends = run(world, {victim.rank, victim.point, stop});
      for_each_survivor(ends, -1, [&](int rank, const std::string& result) {
        if (result == "done" || rank == victim.rank) return;
        expect_told(result);
        if (is_forming(result)) return;
        EXPECT_GE(board->after_ms[rank], kDeadlineMs);
        EXPECT_LE(board->after_ms[rank], kDeadlineMs * 3 + 500);
      });
      clean();
    });
  }
}

}  // namespace
}  // namespace zero::test
