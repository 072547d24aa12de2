// SPDX-License-Identifier: Apache-2.0
// Trainings that are disturbed by kills, stops and full disks at random times from a seed. Each
// continues from its newest checkpoint on another number of ranks, and ends with bitwise the same
// result as an undisturbed one.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/expect.h"
#include "support/place.h"
#include "support/points.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/trials.h"

namespace zero::test {
namespace {

constexpr int kMostRanks = 6;
constexpr int64_t kGoal = 240;     // steps of a training, more than all jobs except the last take
constexpr int64_t kMostLate = 20;  // steps that a job takes while its strike is late
constexpr int64_t kSaveEvery = 4, kKeepLast = 2, kKeepEvery = 20;
constexpr int kBatches = 12;  // of a step, over all ranks
constexpr int64_t kDeadlineMs = 600;
constexpr uint32_t kLeastTrainings = 3;

struct Tensor {
  const char* name;
  std::vector<int64_t> shape;
  int32_t dtype;

  size_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return static_cast<size_t>(count);
  }
  size_t bytes() const {
    const bool half = dtype == ZERO_BFLOAT16, single = dtype == ZERO_FLOAT32;
    return elements() * (half ? 2 : single ? 4 : 8);
  }
};
const std::vector<Tensor> kParams = {{"wte.weight", {67, 31}, ZERO_FLOAT32},
                                     {"half", {33, 40}, ZERO_BFLOAT16},
                                     {"bias", {129}, ZERO_FLOAT64}};
const std::vector<Tensor> kBuffers = {{"mean", {40}, ZERO_FLOAT32}, {"seen", {1}, ZERO_INT64}};

/// Stores element `i`. The values here are exact in bf16.
void put(int32_t dtype, void* memory, size_t i, float value) {
  if (dtype == ZERO_FLOAT64) static_cast<double*>(memory)[i] = value;
  if (dtype == ZERO_FLOAT32) static_cast<float*>(memory)[i] = value;
  if (dtype == ZERO_BFLOAT16)
    static_cast<uint16_t*>(memory)[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

/// What ranks report to the test and to each other, in shared memory.
struct Board {
  std::atomic<pid_t> pids[kMostRanks];
  std::atomic<int64_t> saved;       // step of the newest save that a rank knows to be complete
  std::atomic<bool> struck;         // a rank of this job, or all
  std::atomic<bool> disk_was_full;  // so that a save of this job failed
};
Board& board() {
  static const SharedMemory memory(sizeof(Board));
  return *memory.as<Board>();
}

enum class Ending { at_the_goal, before_it, kill, kill_all, stop };

/// One start of a training.
struct Job {
  std::string name = unique_name();
  std::string folder = {};  // for its checkpoints; "": it saves none
  int world = 1;
  int32_t partition = ZERO_PARTITION_EVEN;
  Ending ending = Ending::at_the_goal;
  int victim = -1;
  int64_t after_steps = 0;             // until the ending, after the resume; -1: after the start
  int64_t after_us = 0;                // additional delay
  int full = -1;                       // a rank whose disk is full
  int64_t full_from = 0, full_to = 0;  // steps after it has resumed
  std::vector<std::string>* states = nullptr;  // after each step, on rank 0

  bool strikes() const { return victim >= 0; }
};

/// Returns the state at the start and after each step of an undisturbed training on one rank.
const std::vector<std::string>& undisturbed();

class Rank {
 public:
  Rank(const Job& job, int rank) : job_(job), rank_(rank) {
    for (const Tensor& param : kParams) {
      data_.emplace_back(param.elements());
      grads_.emplace_back(param.elements());
      for (size_t i = 0; i < param.elements(); i++)
        put(param.dtype, data_.back().data(), i, static_cast<float>(i * 37 % 101) / 64);
    }
    for (const Tensor& buffer : kBuffers) buffers_.emplace_back(buffer.elements());
  }
  ~Rank() {
    zero_free(optim_);
    zero_comm_free(comm_);
  }

  /// Returns "done", or "<call>|<status>|<text>" of the failed call.
  std::string train() {
    board().pids[rank_] = getpid();
    if (rank_ == job_.victim)
      striker_ = std::jthread([this](const std::stop_token& over) { strike(over); });
    if (!meet() || !resume()) return said_;
    while (step_ < kGoal && !(job_.ending == Ending::before_it && steps_ >= job_.after_steps))
      if (!step() || !save_if_due()) return said_;
    if (step_ == kGoal && job_.states == nullptr && !compare()) return said_;
    return "done";
  }

 private:
  bool ok(const char* call, zero_status status) {
    if (status != ZERO_OK) said_ = text(call, "|", zero_status_name(status), "|", last());
    return status == ZERO_OK;
  }

  bool meet() {
    const bool time_passes = job_.ending == Ending::kill || job_.ending == Ending::stop;
    auto options = initialized<zero_comm_options>();
    options.timeout_ms = options.late_ms = time_passes ? kDeadlineMs : 60'000;
    options.rendezvous_ms = options.late_ms;
    if (!ok("meet", zero_comm_create_local(&comm_, job_.name.c_str(), rank_, job_.world, &options)))
      return false;
    const zero_options chosen = options_with([&](zero_options& to) {
      to.partition = job_.partition;
      to.bucket_bytes = 4096;
      to.threads = 1;
      to.max_grad_norm = 30;
    });
    return ok("create", zero_create(&optim_, comm_, &chosen)) && register_tensors();
  }

  bool register_tensors() {
    std::vector<zero_param> params;
    for (size_t p = 0; p < kParams.size(); p++) {
      zero_param& param = params.emplace_back(initialized<zero_param>());
      param.name = kParams[p].name;
      param.shape = kParams[p].shape.data();
      param.ndim = static_cast<int32_t>(kParams[p].shape.size());
      param.dtype = kParams[p].dtype;
      param.data = data_[p].data();
      param.grad = grads_[p].data();
    }
    std::vector<zero_buffer> buffers;
    for (size_t b = 0; b < kBuffers.size(); b++) {
      zero_buffer& buffer = buffers.emplace_back(initialized<zero_buffer>());
      buffer.name = kBuffers[b].name;
      buffer.shape = kBuffers[b].shape.data();
      buffer.ndim = 1;
      buffer.dtype = kBuffers[b].dtype;
      buffer.data = buffers_[b].data();
    }
    return ok("register",
              zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr)) &&
           ok("register", zero_register_buffers(optim_, buffers.data(), buffers.size()));
  }

  /// Resumes from the newest checkpoint if there is one.
  bool resume() {
    auto newest = initialized<zero_checkpoint>();
    size_t count = 0;
    if (!job_.folder.empty() &&
        !ok("list", zero_state_list(job_.folder.c_str(), &newest, 1, &count)))
      return false;
    if (count == 0) {
      fill_buffers();
      if (!ok("broadcast", zero_broadcast_params(optim_, 0, nullptr))) return false;
    } else if (!ok("load", zero_state_load(optim_, job_.folder.c_str(), nullptr))) {
      return false;
    }
    auto result = initialized<zero_result>();
    zero_step_result(optim_, &result);
    step_ = result.step;
    EXPECT_EQ(step_, newest.step);
    EXPECT_GE(step_, board().saved.load()) << "a complete checkpoint is lost";
    if (count > 0) compare_extras(newest.world);
    if (!compare()) return false;
    steps_ = 0;
    return true;
  }

  void compare_extras(int32_t saved_by) {
    size_t count = 0;
    EXPECT_EQ(zero_state_extra_list(optim_, nullptr, nullptr, 0, &count), ZERO_OK) << last();
    EXPECT_EQ(count, static_cast<size_t>(saved_by));
    for (int32_t rank = 0; rank < saved_by; rank++) {
      int64_t position = -1;
      EXPECT_EQ(zero_state_extra_get(optim_, rank, "position", &position, sizeof position, &count),
                ZERO_OK)
          << last();
      EXPECT_EQ(position, step_) << "of rank " << rank;
    }
  }

  /// Compares with the undisturbed training if that is known.
  bool compare() {
    std::string state;
    if (!read_state(state)) return false;
    if (job_.states != nullptr && rank_ == 0) job_.states->push_back(state);
    if (job_.folder.empty()) return true;
    EXPECT_TRUE(state == undisturbed()[static_cast<size_t>(step_)])
        << "other bits at step " << step_ << " on rank " << rank_ << " of " << job_.world;
    return true;
  }

  bool read_state(std::string& state) {
    const auto append = [&](const void* from, size_t bytes) {
      state.append(static_cast<const char*>(from), bytes);
    };
    append(&step_, sizeof step_);
    for (size_t p = 0; p < kParams.size(); p++) {
      append(data_[p].data(), kParams[p].bytes());
      const auto param = static_cast<int64_t>(p);
      const char* names[8];
      size_t count = 0;
      int32_t dtype = 0;
      if (!ok("info", zero_state_info(optim_, param, &dtype, names, 8, &count))) return false;
      for (size_t slot = 0; slot < count; slot++) {
        const bool whole = text(names[slot]) != "step";
        const size_t elements = whole ? kParams[p].elements() : 1;
        std::vector<double> values(elements);
        const zero_status read =
            whole ? zero_state_gather(optim_, param, names[slot], ZERO_ALL_RANKS, values.data(),
                                      elements)
                  : zero_state_get(optim_, param, names[slot], 0, 1, values.data());
        if (!ok("read", read)) return false;
        state += names[slot];
        append(values.data(), elements * (whole && dtype == ZERO_FLOAT32 ? 4 : 8));
      }
    }
    for (size_t b = 0; b < kBuffers.size(); b++) append(buffers_[b].data(), kBuffers[b].bytes());
    return true;
  }

  void fill_buffers() {
    for (size_t b = 0; b < kBuffers.size(); b++) {
      auto* const bytes = reinterpret_cast<unsigned char*>(buffers_[b].data());
      for (size_t i = 0; i < kBuffers[b].bytes(); i++)
        bytes[i] =
            static_cast<unsigned char>((static_cast<size_t>(step_) * 101 + b * 37 + i) % 251);
    }
  }

  /// Sums of any part of the batches are exact, so that results do not depend on the number of
  /// ranks.
  void fill_grads() {
    for (size_t p = 0; p < kParams.size(); p++) {
      for (size_t i = 0; i < kParams[p].elements(); i++) {
        const size_t seed = static_cast<size_t>(step_) * 7919 + p * 104729 + i * 31;
        int sum = 0;
        for (int batch = rank_; batch < kBatches; batch += job_.world)
          sum += static_cast<int>((seed + static_cast<size_t>(batch) * 613) % 21) - 10;
        put(kParams[p].dtype, grads_[p].data(), i, static_cast<float>(sum) / 16);
      }
    }
  }

  bool step() {
    while (rank_ == job_.victim && steps_ > job_.after_steps + kMostLate && !board().struck)
      usleep(100);
    if (rank_ == job_.full) fill_disk();
    fill_grads();
    auto options = initialized<zero_step_options>();
    options.reduce_flags = ZERO_REDUCE_SUM;
    if (!ok("step", zero_step(optim_, &options))) return false;
    step_++;
    steps_++;
    fill_buffers();
    return ok("extra", zero_state_extra_set(optim_, "position", &step_, sizeof step_)) &&
           (job_.states == nullptr || compare());
  }

  /// Returns true if the disk of rank job.full is full, from the start of a step to that of the
  /// next.
  bool disk_is_full_in(int64_t step) const {
    return job_.full >= 0 && step >= job_.full_from && step < job_.full_to;
  }
  /// Lets no file grow. Without privileges, this limit is the closest to a full disk.
  void fill_disk() const {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = disk_is_full_in(steps_ + 1) ? 0 : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  /// Every second save is written in the background.
  bool save_if_due() {
    const bool due = step_ % kSaveEvery == 0 && !job_.folder.empty();
    if (begun_) {
      int32_t done = 0;
      full_meanwhile_ = full_meanwhile_ || disk_is_full_in(steps_);
      if (!ok("poll", zero_state_save_poll(optim_, &done))) return false;
      if ((due || done != 0) && !ended("wait", zero_state_save_wait(optim_))) return false;
    }
    if (!due) return true;
    saving_ = step_;
    begun_ = step_ % (2 * kSaveEvery) != 0;
    full_meanwhile_ = disk_is_full_in(steps_);
    const std::string path = text(job_.folder, "/step-", step_);
    if (begun_) {
      const zero_status status = zero_state_save_begin(optim_, path.c_str(), nullptr);
      return status == ZERO_OK || ended("begin", status);
    }
    const zero_status status = zero_state_save(optim_, path.c_str(), nullptr);
    EXPECT_FALSE(full_meanwhile_ && status == ZERO_OK) << "saved on a full disk";
    return ended("save", status);
  }

  /// Checks that a save succeeded, or failed because a disk was full meanwhile.
  bool ended(const char* call, zero_status status) {
    begun_ = false;
    const bool refused = status == ZERO_ERR_CKPT_IO || status == ZERO_ERR_PEER;
    if (refused && full_meanwhile_) {
      board().disk_was_full = true;
      EXPECT_EQ(status == ZERO_ERR_CKPT_IO, rank_ == job_.full) << last();
      const std::string who = rank_ == job_.full ? "" : text("rank ", job_.full);
      EXPECT_TRUE(says("(EFBIG)")) << call;
      EXPECT_TRUE(says(who)) << call;
      return true;
    }
    if (!ok(call, status)) return false;
    board().saved = saving_;
    return rank_ != 0 ||
           ok("prune", zero_state_prune(job_.folder.c_str(), kKeepLast, kKeepEvery, nullptr));
  }

  /// Runs on a separate thread, wherever the training is then.
  void strike(const std::stop_token& over) const {
    const auto has_come = [](const std::atomic<pid_t>& pid) { return pid != 0; };
    const auto pids = std::span(board().pids).first(static_cast<size_t>(job_.world));
    while (steps_ < job_.after_steps || !std::ranges::all_of(pids, has_come)) {
      if (over.stop_requested()) return;
      usleep(50);
    }
    usleep(static_cast<useconds_t>(job_.after_us));
    if (over.stop_requested()) return;
    board().struck = true;
    if (job_.ending == Ending::stop) return stop();
    if (job_.ending == Ending::kill) return die();
    for (const std::atomic<pid_t>& pid : pids)
      if (pid != getpid()) kill(pid, SIGKILL);
    kill(getpid(), SIGKILL);
  }

  const Job& job_;
  const int rank_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  std::vector<std::vector<double>> data_, grads_, buffers_;  // storage, aligned for any dtype
  int64_t step_ = 0;
  std::atomic<int64_t> steps_{-1};  // after it has resumed
  bool begun_ = false;              // a save in the background
  int64_t saving_ = 0;              // the step of the latest save
  bool full_meanwhile_ = false;
  std::string said_;
  std::jthread striker_;
};

std::vector<std::string> states_of(Job job, int64_t steps) {
  std::vector<std::string> states;
  job.states = &states;
  job.ending = Ending::before_it;
  job.after_steps = steps;
  for (const std::string& said : run_sound_ranks(RankKind::threads, job.world,
                                                 [&](int rank) { return Rank(job, rank).train(); }))
    EXPECT_EQ(said, "done");
  return states;
}

const std::vector<std::string>& undisturbed() {
  static const std::vector<std::string> states = states_of({}, kGoal);
  return states;
}

TEST(Soak, undisturbed_bits_are_those_of_one_rank_on_any_number_of_ranks) {
  constexpr size_t kSteps = 10;
  for (int world = 2; world <= kMostRanks; world++) {
    for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY}) {
      Job job;
      job.world = world;
      job.partition = partition;
      const std::vector<std::string> states = states_of(job, kSteps);
      ASSERT_EQ(states.size(), kSteps + 1);
      EXPECT_TRUE(std::ranges::equal(states, std::span(undisturbed()).first(states.size())))
          << world << " ranks, partition " << partition;
    }
  }
}

// ---- Disturbed trainings.

using Random = std::mt19937;

int below(int end, Random& random) { return static_cast<int>(random() % static_cast<size_t>(end)); }

Job draw(Ending ending, const std::string& folder, Random& random) {
  Job job;
  job.folder = folder;
  job.ending = ending;
  job.world = 2 + below(kMostRanks - 1, random);
  job.partition = below(2, random) == 0 ? ZERO_PARTITION_EVEN : ZERO_PARTITION_GREEDY;
  const int victim = below(job.world, random);
  if (ending != Ending::at_the_goal && ending != Ending::before_it) job.victim = victim;
  job.after_steps = below(4, random) == 0 ? -1 : below(12, random);
  job.after_us = below(6000, random);
  const bool fills = below(3, random) == 0 || ending == Ending::before_it;
  // Long enough for a save at once, and after the first step: before that, ranks create shared
  // memory, which the limit in place of a full disk would also affect.
  const int full = below(job.world, random), from = 2 + below(4, random);
  const int steps = 9 + below(4, random);
  if (!fills || ending == Ending::at_the_goal) return job;
  job.full = full;
  job.full_from = from;
  job.full_to = from + steps;
  job.after_steps += job.full_to;
  return job;
}

std::string description_of(const Job& job) {
  constexpr const char* kEndings[] = {"", "leaves", "is killed", "dies with all", "is stopped"};
  return text(job.world, " ranks, partition ", job.partition, "; rank ", job.victim, " ",
              kEndings[static_cast<int>(job.ending)], " after ", job.after_steps, " steps and ",
              job.after_us, " us; the disk of rank ", job.full, " is full in steps ", job.full_from,
              " to ", job.full_to);
}

/// Checks that every rank that was not struck has ended, and names the struck rank.
void check_ends(const Job& job, const std::vector<RankEnd>& ends) {
  const bool all = job.ending == Ending::kill_all;
  EXPECT_EQ(board().struck.load(), job.strikes());
  EXPECT_TRUE(job.ending != Ending::before_it || board().disk_was_full) << "no save has failed";
  for (int rank = 0; rank < job.world; rank++) {
    const RankEnd& end = ends[static_cast<size_t>(rank)];
    SCOPED_TRACE(text("rank ", rank, ": ", end.result));
    const bool dies = all || (job.ending == Ending::kill && rank == job.victim);
    if (dies && end.signal == SIGKILL) continue;
    ASSERT_TRUE(end.returned && end.exit_status == 0)
        << (end.hung ? "hung" : "") << ", exit status " << end.exit_status << ", signal "
        << end.signal;
    EXPECT_FALSE(dies && !all) << "it lives";
    if (end.result == "done") continue;  // it no longer needed the struck rank
    EXPECT_TRUE(job.strikes());
    if (rank == job.victim) continue;  // it was stopped, and may get any error
    const bool forming = end.result.starts_with("meet|");
    const char* const status = forming                      ? "|ZERO_ERR_RENDEZVOUS|"
                               : job.ending == Ending::stop ? "|ZERO_ERR_TIMEOUT|"
                                                            : "|ZERO_ERR_PEER_DEAD|";
    EXPECT_TRUE(contains(end.result, status, all ? "rank " : text("rank ", job.victim)));
  }
}

void run_job(const Job& job) {
  for (std::atomic<pid_t>& pid : board().pids) pid = 0;
  board().struck = board().disk_was_full = false;
  const auto body = [&](int rank) { return Rank(job, rank).train(); };
  const bool time_passes = job.ending == Ending::kill || job.ending == Ending::stop;
  check_ends(job, time_passes ? run_struck_ranks(job.world, body)
                              : run_ranks(RankKind::processes, job.world, body));
}

void count_faults(const Job& job, std::map<std::string, int64_t>& faults) {
  constexpr const char* kKinds[] = {"", "", "a rank was killed", "all ranks were killed",
                                    "a rank was stopped"};
  const auto count = [&](const char* kind) {
    faults[kind]++;
    count_trial();
  };
  if (board().struck) count(kKinds[static_cast<int>(job.ending)]);
  if (board().disk_was_full) count("a disk was full");
}

void check_folder(const std::string& folder) {
  zero_checkpoint found[64];
  for (zero_checkpoint& one : found) ZERO_INIT(one);
  size_t count = 0;
  ASSERT_OK(zero_state_list(folder.c_str(), found, 64, &count));
  ASSERT_GE(count, 1u);
  EXPECT_EQ(found[0].step, kGoal);
  for (size_t i = kKeepLast; i < count; i++) EXPECT_EQ(found[i].step % kKeepEvery, 0);
  EXPECT_EQ(names_in(folder).size(), count) << "something else is left";
}

void disturb_a_training(uint32_t seed, std::map<std::string, int64_t>& faults) {
  Random random(seed);
  const Scratch scratch;
  std::vector endings{Ending::kill, Ending::kill, Ending::kill_all, Ending::stop,
                      Ending::before_it};
  for (int left = static_cast<int>(endings.size()); left > 1; left--)
    std::swap(endings[static_cast<size_t>(left - 1)],
              endings[static_cast<size_t>(below(left, random))]);
  endings.push_back(Ending::at_the_goal);
  board().saved = 0;
  for (const Ending ending : endings) {
    const Job job = draw(ending, scratch / "run", random);
    SCOPED_TRACE(text("ZERO_SOAK_SEED=", seed, ": ", description_of(job)));
    run_job(job);
    count_faults(job, faults);
    if (testing::Test::HasFailure()) return;
  }
  check_folder(scratch / "run");
}

/// Writes like a slow disk, so that training overtakes the writers.
ssize_t write_slowly(int fd, const void* data, size_t bytes, int64_t offset) {
  usleep(500);
  return real_system_calls().pwrite(fd, data, bytes, offset);
}

TEST(Soak, a_training_disturbed_again_and_again_ends_with_the_bits_of_one_that_is_not) {
  using Wall = std::chrono::steady_clock;
  const char* const seconds = std::getenv("ZERO_SOAK_SECONDS");
  const char* const given = std::getenv("ZERO_SOAK_SEED");
  const uint32_t first =
      given ? static_cast<uint32_t>(std::stoul(given)) : (seconds ? std::random_device()() : 1);
  std::cout << "ZERO_SOAK_SEED=" << first << std::endl;
  const auto until = Wall::now() + std::chrono::seconds(seconds ? std::stol(seconds) : 0);
  ASSERT_EQ(undisturbed().size(), size_t{kGoal} + 1);
  const ReplacedCall slow(&SystemCalls::pwrite, write_slowly);
  std::map<std::string, int64_t> faults;
  uint32_t seed = first;
  while ((seed - first < kLeastTrainings || Wall::now() < until) && !HasFailure())
    disturb_a_training(seed++, faults);
  for (const auto& [kind, count] : faults) std::cout << "faults: " << count << " " << kind << "\n";
  std::cout << "trainings: " << seed - first << "\n";
}

}  // namespace
}  // namespace zero::test
