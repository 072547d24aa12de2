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

#include "base/os.h"
#include "support/expect.h"
#include "support/ranks.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kMostRanks = 4;
constexpr int64_t kDeadlineMs = 400;

/// What ranks and the test tell each other, in memory that forked ranks share.
struct Board {
  std::atomic<int64_t> struck_ns;       // when the victim was about to go
  std::atomic<int> points[kMostRanks];  // passed so far
  std::atomic<int64_t> failed_ns[kMostRanks];
  std::atomic<int> victim;  // its process
  std::atomic<int> ended;   // survivors that are through
  char point[64];           // the name of the point the victim went at
  // What the survivors' zero_comm_failure says, once a call has failed.
  int consistent[kMostRanks];
  char phase[kMostRanks][32];
};

struct Strike {
  int rank;
  int point;
  int signal;
  const char* first = nullptr;  // instead of `point`: where the first step passes this one first
  double max_grad_norm = 0;
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
};

Board* board = nullptr;
Strike strike;
int own_rank = 0;
bool in_first_step = false;
SystemCalls calls;

void reached(const char* name) {
  const int passed = board->points[own_rank].fetch_add(1);
  if (own_rank != strike.rank) return;
  if (strike.first == nullptr && passed != strike.point) return;
  if (strike.first != nullptr && !(in_first_step && std::strcmp(strike.first, name) == 0)) return;
  std::strncpy(board->point, name, sizeof board->point - 1);
  board->victim = getpid();
  board->struck_ns = now_ns();
  kill(getpid(), strike.signal);
}

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
    options.timeout_ms = options.late_ms = kDeadlineMs;
    options.rendezvous_ms = 800;
    if (failed("create", zero_comm_create_local(&comm_, name_.c_str(), rank_, world_, &options)))
      return out_;
    if (failed("arena", zero_arena_alloc(comm_, 40000, ZERO_MEMORY_SHARED, &model_.data)))
      return out_;
    if (failed("arena", zero_arena_alloc(comm_, 40000, ZERO_MEMORY_PER_RANK, &model_.grads)))
      return out_;
    if (!build()) return out_;
    if (failed("broadcast", zero_broadcast_params(optim_, 0, nullptr))) return out_;
    if (failed("buffers", zero_broadcast_buffers(optim_, world_ - 1, nullptr))) return out_;
    in_first_step = true;
    if (failed("step", zero_step(optim_, nullptr))) return out_;
    in_first_step = false;
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
  bool failed(const char* call, zero_status status) {
    if (status == ZERO_OK) return false;
    board->failed_ns[rank_] = now_ns();
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
    auto custom = initialized<zero_custom_optimizer>();
    custom.name = "descend";
    custom.update = descend;
    if (strike.optimizer == ZERO_OPTIMIZER_CUSTOM) options.custom = &custom;
    if (failed("create", zero_create(&optim_, comm_, &options))) return false;
    const int64_t sizes[] = {5000, 1, 300, 2500};
    zero_param params[4];
    const char* names[] = {"a", "b", "foreign", "d"};
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
      ZERO_INIT(params[i]);
      params[i].name = names[i];
      params[i].shape = &sizes[i];
      params[i].ndim = 1;
      params[i].data = i == 2 ? model_.foreign : static_cast<float*>(model_.data) + at;
      params[i].grad = i == 2 ? model_.foreign_grad : static_cast<float*>(model_.grads) + at;
      for (int64_t k = 0; k < sizes[i]; k++) static_cast<float*>(params[i].grad)[k] = 0.25f;
      at += i == 2 ? 0 : static_cast<size_t>(sizes[i]);
    }
    if (failed("register", zero_register_params(optim_, nullptr, params, 4, nullptr))) return false;
    return !failed("register", register_buffers(static_cast<float*>(model_.data) + at));
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

  int rank_, world_;
  std::string name_, directory_, out_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  Model model_;
};

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("libzero-fault-" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::vector<RankEnd> run(int world, const Strike& what) {
    memory_ = std::make_unique<SharedMemory>(sizeof(Board));
    board = memory_->as<Board>();
    strike = what;
    const std::string name = "fault-" + std::to_string(getpid()) + "-" + std::to_string(next_++);
    const std::string directory = root_ / ("checkpoint-" + std::to_string(next_));
    const LongestWait longest_wait(2 * kDeadlineMs);
    return run_ranks(
        RankKind::processes, world,
        [&](int rank) {
          own_rank = rank;
          calls = real_system_calls();
          calls.reached = reached;
          replace_system_calls(&calls);
          std::string result = TrainingRun(rank, world, name, directory).go();
          // The last survivor wakes a stopped rank, which must find itself fenced out.
          if (rank != strike.rank && board->ended.fetch_add(1) == world - 2 && board->victim != 0) {
            kill(board->victim, SIGCONT);
          }
          return result;
        },
        30'000);
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
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      if (entry.path().filename().string().rfind(".tmp-", 0) == 0) found++;
    }
    return found;
  }

  void clean() {
    for (const auto& entry : std::filesystem::directory_iterator(root_))
      std::filesystem::remove_all(entry.path());
  }

  /// How many points each rank passes when nobody is struck.
  std::vector<int> count_points(int world) {
    for (const RankEnd& end : run(world, {-1, -1, 0})) EXPECT_EQ(end.result, "done");
    std::vector<int> points;
    for (int rank = 0; rank < world; rank++) points.push_back(board->points[rank]);
    clean();
    return points;
  }

  std::filesystem::path root_;
  std::unique_ptr<SharedMemory> memory_;
  int next_ = 0;
};

/// The survivor's sentence names the victim and has the right code; `stopped` decides between two
/// codes.
void expect_told(const std::string& result, int victim, bool stopped, const std::string& where) {
  if (result == "done") return;  // it no longer needed the victim
  const bool forming = result.rfind("create|", 0) == 0;
  const std::string code = forming   ? "|ZERO_ERR_RENDEZVOUS|"
                           : stopped ? "|ZERO_ERR_TIMEOUT|"
                                     : "|ZERO_ERR_PEER_DEAD|";
  EXPECT_NE(result.find(code), std::string::npos) << where << ": " << result;
  EXPECT_NE(result.find("rank " + std::to_string(victim)), std::string::npos)
      << where << ": " << result;
}

/// Parameters are in question where the comm broke while some rank was publishing, and only there.
void expect_consistency(const std::string& result, int rank, const std::string& where) {
  if (result == "done" || result.rfind("create|", 0) == 0) return;
  const std::string phase = board->phase[rank];
  const bool publishing = phase.rfind("zero_step: publish", 0) == 0 ||
                          (phase.rfind("zero_broadcast_params: ", 0) == 0 &&
                           board->point == std::string("broadcast.param"));
  if (phase.rfind("zero_broadcast_params: ", 0) == 0 && !publishing) return;  // either
  EXPECT_EQ(board->consistent[rank], publishing ? 0 : 1)
      << where << ", broken in '" << phase << "': " << result;
}

TEST_F(FaultTest, a_rank_killed_at_any_point_is_named_by_all_others_at_once) {
  std::vector<double> milliseconds;
  for (int world = 2; world <= kMostRanks; world++) {
    const std::vector<int> points = count_points(world);
    for (int victim = 0; victim < world; victim++) {
      const int stride = nightly_run() ? 1 : 7;
      for (int point = victim % stride; point < points[static_cast<size_t>(victim)];
           point += stride) {
        const std::vector<RankEnd> ends = run(world, {victim, point, SIGKILL});
        const std::string where = "world " + std::to_string(world) + ", rank " +
                                  std::to_string(victim) + " killed at " + board->point;
        for (int rank = 0; rank < world; rank++) {
          const RankEnd& end = ends[static_cast<size_t>(rank)];
          ASSERT_FALSE(end.hung) << where << ": rank " << rank << " hung";
          if (rank == victim) continue;
          ASSERT_TRUE(end.returned)
              << where << ": rank " << rank << " ended with signal " << end.signal;
          expect_told(end.result, victim, false, where + ", rank " + std::to_string(rank));
          expect_consistency(end.result, rank, where + ", rank " + std::to_string(rank));
          if (end.result != "done" && end.result.rfind("create|", 0) != 0) {
            milliseconds.push_back(static_cast<double>(board->failed_ns[rank] - board->struck_ns) *
                                   1e-6);
          }
        }
        EXPECT_LE(directories_left(), 1) << where;
        EXPECT_EQ(sockets(), 0) << where;
        clean();
        if (HasFailure()) return;
      }
    }
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  ASSERT_FALSE(milliseconds.empty());
  const double p99 = milliseconds[milliseconds.size() * 99 / 100];
  RecordProperty("survivors", static_cast<int>(milliseconds.size()));
  std::printf("%zu survivors told after %.2f ms (median), %.2f ms (p99), %.2f ms (worst)\n",
              milliseconds.size(), milliseconds[milliseconds.size() / 2], p99, milliseconds.back());
  EXPECT_LE(p99, 100);
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

TEST_F(FaultTest, a_death_tells_every_survivor_whether_parameters_were_being_published) {
  const auto kill_at = [&](int world, int victim, const StepPoint& point, double max_grad_norm,
                           int32_t optimizer = ZERO_OPTIMIZER_ADAMW) {
    const std::vector<RankEnd> ends =
        run(world, {victim, -1, SIGKILL, point.name, max_grad_norm, optimizer});
    const std::string where = "world " + std::to_string(world) + ", rank " +
                              std::to_string(victim) + " killed at " + point.name;
    EXPECT_EQ(ends[static_cast<size_t>(victim)].signal, SIGKILL) << where;
    for (int rank = 0; rank < world; rank++) {
      if (rank == victim) continue;
      const std::string& result = ends[static_cast<size_t>(rank)].result;
      const std::string call = point.done ? "reduce|" : "step|";
      EXPECT_EQ(result.rfind(call, 0), 0u) << where << ", rank " << rank << ": " << result;
      EXPECT_EQ(board->consistent[rank], point.publishing ? 0 : 1)
          << where << ", rank " << rank << ": " << result;
    }
    clean();
  };
  for (int world = 2; world <= 3; world++) {
    for (int victim = 0; victim < world; victim++) {
      for (const StepPoint& point : kOnePass) kill_at(world, victim, point, 0);
      for (const StepPoint& point : kClips) kill_at(world, victim, point, 0.5);
      for (const StepPoint& point : kHasNorms)
        kill_at(world, victim, point, 0, ZERO_OPTIMIZER_LAMB);
      for (const StepPoint& point : kOwnRule)
        kill_at(world, victim, point, 0, ZERO_OPTIMIZER_CUSTOM);
      if (HasFailure()) return;
    }
  }
}

TEST_F(FaultTest, a_rank_stopped_at_any_point_is_named_at_the_deadline) {
  for (int world = 2; world <= kMostRanks; world++) {
    const std::vector<int> points = count_points(world);
    for (int victim = 0; victim < world; victim++) {
      const int stride = nightly_run() ? 1 : 127;
      for (int point = victim; point < points[static_cast<size_t>(victim)]; point += stride) {
        const std::vector<RankEnd> ends = run(world, {victim, point, SIGSTOP});
        const std::string where = "world " + std::to_string(world) + ", rank " +
                                  std::to_string(victim) + " stopped at " + board->point;
        for (int rank = 0; rank < world; rank++) {
          const RankEnd& end = ends[static_cast<size_t>(rank)];
          ASSERT_TRUE(end.returned) << where << ": rank " << rank;
          if (rank == victim) continue;
          expect_told(end.result, victim, true, where + ", rank " + std::to_string(rank));
          if (end.result == "done" || end.result.rfind("create|", 0) == 0) continue;
          const double waited =
              static_cast<double>(board->failed_ns[rank] - board->struck_ns) * 1e-6;
          EXPECT_GE(waited, kDeadlineMs * 0.9) << where;
          EXPECT_LE(waited, kDeadlineMs * 3 + 500) << where;
        }
        clean();
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
