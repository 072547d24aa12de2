// SPDX-License-Identifier: Apache-2.0
// How long a program waits for a reduction, a step and the gather of parameters that overlap with
// its backward and forward pass. Most ranks compute in these passes, each on its own core. The
// others sleep, as if a device computed, so that one core is free.
#include <cstring>
#include <string_view>

#include "report.h"
#include "subjects.h"

namespace bench {
namespace {

struct Settings {
  int ranks = 2;
  int steps = 20;
  int warmup = 3;
  int busy_ranks = -1;  // ranks that compute; -1: all cores except one
  double busy = 2;      // how long a backward and a forward pass sleep, relative to a step alone
};

enum Mode { kReduce, kReduceAnnounced, kStep, kStepAnnounced, kStepBegun, kForward, kForwardWaits };
constexpr int kModes = 7;
constexpr const char* kNames[kModes] = {
    "zero_reduce_grads",       "the same, announced",        "zero_step",
    "the same, announced",     "zero_step_begin, announced", "zero_step, then a forward",
    "the same, overlap_gather"};
// The mode that each is compared with.
constexpr Mode kAlone[kModes] = {kReduce, kReduce, kStep, kStep, kStep, kForward, kForward};

void compute_seconds(double seconds) {
  const double end = now() + seconds;
  while (now() < end) pause_briefly();
}

void sleep_seconds(double seconds) {
  timespec time;
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  nanosleep(&time, nullptr);
}

/// A model whose backward and forward passes take `pass` seconds, tensor by tensor.
class Model {
 public:
  Model(const Rank& rank, const Workload& work, bool computes, bool overlaps)
      : work_(work), computes_(computes) {
    static int serial = 0;
    const std::string name =
        "overlap-" + std::to_string(getppid()) + "-" + std::to_string(serial++);
    check(zero_comm_create_local(&comm_, name.c_str(), rank.rank, rank.world, nullptr), "comm");
    zero_options options;
    ZERO_INIT(options);
    options.threads = 1;
    options.overlap_gather = overlaps;
    check(zero_create(&optim_, comm_, &options), "zero_create");
    std::vector<zero_param> params = make_params(work);
    std::vector<int64_t> offsets(params.size());
    zero_plan plan;
    ZERO_INIT(plan);
    plan.offsets = offsets.data();
    check(zero_partition_plan(params.data(), params.size(), rank.world, &options, &plan), "plan");
    const auto bytes = static_cast<size_t>(plan.arena_bytes);
    check(zero_arena_alloc(comm_, bytes, ZERO_MEMORY_SHARED, &data_), "arena");
    check(zero_arena_alloc(comm_, bytes, ZERO_MEMORY_PER_RANK, &grads_), "arena");
    std::fill_n(static_cast<float*>(grads_), bytes / sizeof(float), 0.01f);
    for (size_t i = 0; i < params.size(); i++) {
      params[i].data = static_cast<char*>(data_) + offsets[i];
      params[i].grad = static_cast<char*>(grads_) + offsets[i];
      params[i].flags |= ZERO_PARAM_PADDED;
      grad_.push_back(params[i].grad);
    }
    check(zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr), "register");
    check(zero_broadcast_params(optim_, 0, nullptr), "broadcast");
  }
  ~Model() {
    zero_free(optim_);
    zero_arena_free(data_);
    zero_arena_free(grads_);
    zero_comm_free(comm_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void begin() { check(zero_step_begin(optim_, nullptr), "zero_step_begin"); }
  void reduce() { check(zero_reduce_grads(optim_, nullptr, 0, 0, nullptr), "zero_reduce_grads"); }
  void drop() { check(zero_drop_grads(optim_), "zero_drop_grads"); }
  void step() { check(zero_step(optim_, nullptr), "zero_step"); }

  void backward(double pass, bool announces) {
    Pace pace(pass, work_.elements, computes_);
    for (size_t i = work_.tensors.size(); i-- > 0;) {
      pace.work(work_.tensors[i].count);
      if (!announces) continue;
      check(zero_grad_ready(optim_, static_cast<int64_t>(i), grad_[i], nullptr), "zero_grad_ready");
    }
    pace.finish();
  }
  void forward(double pass) {
    Pace pace(pass, work_.elements, computes_);
    for (size_t i = 0; i < work_.tensors.size(); i++) {
      check(zero_param_wait(optim_, static_cast<int64_t>(i), nullptr), "zero_param_wait");
      pace.work(work_.tensors[i].count);
    }
    pace.finish();
  }

 private:
  /// Sleeps or computes in intervals that are long enough for a sleep.
  class Pace {
   public:
    Pace(double seconds, int64_t elements, bool computes)
        : each_(seconds / static_cast<double>(elements)), computes_(computes) {}
    void work(int64_t elements) {
      owed_ += each_ * static_cast<double>(elements);
      if (owed_ > 1e-3) finish();
    }
    void finish() {
      const double start = now();
      if (owed_ > 0) computes_ ? compute_seconds(owed_) : sleep_seconds(owed_);
      owed_ -= now() - start;
    }

   private:
    const double each_;
    const bool computes_;
    double owed_ = 0;
  };

  const Workload& work_;
  const bool computes_;
  std::vector<void*> grad_;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  void *data_ = nullptr, *grads_ = nullptr;
};

void measure(Rank& rank, const Settings& settings, const Workload& work) {
  const bool computes = rank.rank < settings.busy_ranks;
  Model model(rank, work, computes, false), overlapped(rank, work, computes, true);
  double pass = 0;
  for (int round = 0; round < settings.warmup; round++) {
    rank.time(kModes, true, [&] { model.step(); });
    pass = settings.busy * rank.board->series[kModes].seconds[round];
    overlapped.step();
  }
  for (int round = -1; round < settings.steps; round++) {
    const bool keep = round >= 0;
    for (const bool announces : {false, true}) {
      rank.meet();
      model.backward(pass, announces);
      rank.time(announces ? kReduceAnnounced : kReduce, keep, [&] { model.reduce(); });
      model.drop();
      rank.meet();
      model.backward(pass, announces);
      rank.time(announces ? kStepAnnounced : kStep, keep, [&] { model.step(); });
    }
    model.begin();
    model.backward(pass, true);
    rank.time(kStepBegun, keep, [&] { model.step(); });
    rank.meet();
    model.backward(pass, false);
    rank.time(kForward, keep, [&] {
      model.step();
      model.forward(pass);
    });
    overlapped.backward(pass, false);
    rank.time(kForwardWaits, keep, [&] {
      overlapped.step();
      overlapped.forward(pass);
    });
    if (rank.rank == 0) rank.board->seconds[kMaxRanks - 1] = pass;
  }
}

bool run(const Settings& settings, const Workload& work) {
  auto* board = share<Board>();
  if (!fork_ranks(board, settings.ranks, 1, [&](Rank& rank) { measure(rank, settings, work); }))
    return false;
  const double pass = board->seconds[kMaxRanks - 1];
  const double last =
      static_cast<double>(work.tensors[0].count) / static_cast<double>(work.elements);
  std::printf("\n%s, a pass of %.1f ms; the last of %zu gradients is %.1f%% of all\n",
              work.name.c_str(), pass * 1e3, work.tensors.size(), last * 100);
  const auto exposed = [&](Mode mode) {
    const double median = spread(board->series[mode]).median;
    return mode == kForward || mode == kForwardWaits ? median - pass : median;
  };
  std::printf("%-30s %12s %10s\n", "waited for after the backward", "median ms", "of alone");
  for (int i = 0; i < kModes; i++) {
    const auto mode = static_cast<Mode>(i);
    std::printf("%-30s %12.2f %9.1f%%\n", kNames[i], exposed(mode) * 1e3,
                100 * exposed(mode) / exposed(kAlone[i]));
  }
  return true;
}

int run(Settings settings) {
  if (settings.busy_ranks < 0) {
    const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    settings.busy_ranks = std::min(settings.ranks, cores - 1);
  }
  std::printf(
      "libzero; %s\n%d ranks of one thread, of %d a pass computes, a pass takes %.1f steps\n",
      zero_build_info(), settings.ranks, settings.busy_ranks, settings.busy);
  for (const Workload& work : {gpt2(), blocks()})
    if (!run(settings, work)) return 1;
  return 0;
}

}  // namespace
}  // namespace bench

int main(int count, char** words) {
  bench::Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = words[i];
    if (name == "--ranks") settings.ranks = std::atoi(words[i + 1]);
    if (name == "--steps") settings.steps = std::atoi(words[i + 1]);
    if (name == "--busy") settings.busy = std::atof(words[i + 1]);
    if (name == "--busy-ranks") settings.busy_ranks = std::atoi(words[i + 1]);
  }
  if (settings.ranks < 1 || settings.ranks > 16 || settings.steps < 1 || settings.steps > 900 ||
      settings.busy <= 0) {
    std::fprintf(stderr, "overlap_bench [--ranks 2] [--steps 20] [--busy 2] [--busy-ranks 1]\n");
    return 2;
  }
  return bench::run(settings);
}
