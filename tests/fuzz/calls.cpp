// SPDX-License-Identifier: Apache-2.0
// Calls of zero.h in any order, with any arguments that a caller may pass, on one to three ranks
// that are threads. All ranks make most of them, and some ranks make the others.
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "fuzz/input.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "zero.h"

namespace {

using zero::fuzz::must;

constexpr int kTensors = 4;
constexpr size_t kRoom = 4096;  // elements of 8 bytes, in the largest tensor

template <class Struct>
Struct initialized() {
  Struct made;
  ZERO_INIT(made);
  return made;
}

/// Returns numbers that callers often pass by mistake.
int64_t odd_number(uint8_t choice) {
  constexpr int64_t kOdd[] = {-1, INT64_MIN, INT64_MAX, INT32_MAX, 1'000'000, -2, 256, 4096};
  return choice < 200 ? choice % 5 : kOdd[choice % std::size(kOdd)];
}

double odd_double(uint8_t choice) {
  constexpr double kOdd[] = {0, -1, 1e-300, 1e300, INFINITY, NAN, 1e6, 1.0 / 65536, 65536, -0.0};
  return choice < 128 ? 0.1 * (choice % 10) : kOdd[choice % std::size(kOdd)];
}

/// One call: its kind, the ranks that make it, and its arguments.
struct Step {
  uint8_t what, ranks, a, b, c;
};

struct Job {
  std::string name, folder;
  int world;
  Step options;
  std::vector<Step> steps;
};

/// The handles and memory of one rank.
class Rank {
 public:
  Rank(const Job& job, int rank) : job_(job), rank_(rank) {
    auto options = initialized<zero_comm_options>();
    options.timeout_ms = options.late_ms = 20'000;
    options.rendezvous_ms = 20'000;
    check(job.world == 1
              ? zero_comm_create_solo(&comm_, &options)
              : zero_comm_create_local(&comm_, job.name.c_str(), rank, job.world, &options));
    must(comm_ != nullptr, "ranks that do nothing wrong meet");
    create();
  }
  ~Rank() {
    zero_free(optim_);
    zero_arena_free(arena_);
    zero_comm_free(child_);
    zero_comm_free(comm_);
  }

  void run() {
    for (const Step& step : job_.steps)
      if (step.ranks < 224 || (step.ranks >> rank_ & 1)) make(step);
  }

 private:
  /// Checks that a call returns nothing else, and reports no bug in the library.
  static void check(zero_status status) {
    if (status == ZERO_ERR_INTERNAL) std::fprintf(stderr, "%s\n", zero_last_error());
    must(
        status != ZERO_ERR_INTERNAL && std::strcmp(zero_status_name(status), "unknown status") != 0,
        "a call returns a known status");
    must(status >= 0 || zero_last_error()[0] != 0, "a call that failed says why");
  }

  void create() {
    const Step& given = job_.options;
    auto options = initialized<zero_options>();
    options.optimizer = given.what % 16;
    options.partition = given.ranks % 4;
    options.bucket_bytes = 4096;
    options.threads = 1;
    options.uneven_inputs = given.a % 4;
    options.nonfinite = given.a / 4 % 3;
    options.master = given.a / 16 % 3;
    options.wire_dtype = given.b % 4 == 0 ? ZERO_BFLOAT16 : 0;
    options.max_grad_norm = given.b / 4 % 3 == 0 ? 1 : 0;
    options.loss_scale = given.b / 16 % 3 == 0 ? 1024 : 0;
    options.overlap_gather = given.c % 4 == 0;
    check(zero_create(&optim_, comm_, &options));
  }

  void add_params(const Step& step) {
    if (registered_ == kTensors) return;
    const int64_t shape[2] = {step.a % 64, 1 + step.b % 60};
    const std::string name = "w" + std::to_string(registered_);
    auto param = initialized<zero_param>();
    param.name = name.c_str();
    param.data = memory_[registered_];
    param.grad = step.c & 1 ? nullptr : grads_[registered_];
    param.shape = shape;
    param.ndim = step.c >> 1 & 1 ? 2 : 1;
    param.dtype = step.c >> 2 & 7;
    param.flags = step.c & 64 ? ZERO_PARAM_FROZEN : 0;
    param.owner = step.a % 4;
    const zero_status status = zero_register_params(optim_, nullptr, &param, 1, nullptr);
    check(status);
    registered_ += status == ZERO_OK;
  }

  void add_buffer(const Step& step) {
    const int64_t shape = step.a % 40;
    const std::string name = "b" + std::to_string(step.b % 3);
    auto buffer = initialized<zero_buffer>();
    buffer.name = name.c_str();
    buffer.data = buffers_[step.b % 3];
    buffer.shape = &shape;
    buffer.ndim = 1;
    buffer.dtype = step.c % 8;
    check(zero_register_buffers(optim_, &buffer, 1));
  }

  void make(const Step& step) {
    if (step.what < 40) return train(step);
    if (step.what < 80) return reduce(step);
    if (step.what < 120) return look(step);
    if (step.what < 160) return keep(step);
    if (step.what < 180) return add_params(step);
    if (step.what < 200) return talk(step);
    add_buffer(step);
  }

  void train(const Step& step) {
    const int64_t param = odd_number(step.a);
    switch (step.what % 10) {
      case 0:
        return check(zero_seal(optim_));
      case 1:
        return check(zero_broadcast_params(optim_, static_cast<int32_t>(param), nullptr));
      case 2:
      case 3: {
        auto options = initialized<zero_step_options>();
        options.reduce_flags = step.b % 8;
        return check(zero_step(optim_, step.c % 2 ? &options : nullptr));
      }
      case 4:
        return check(zero_step_begin(optim_, nullptr));
      case 5:
        return check(zero_grad_ready(optim_, param, grad(step), nullptr));
      case 6:
        return check(zero_param_wait(optim_, param, nullptr));
      case 7:
        return check(zero_join(optim_, nullptr, nullptr));
      case 8:
        return check(zero_param_set_trainable(optim_, param, step.b % 3));
      default: {
        const int32_t owners[kTensors] = {step.b % 4, step.b / 4 % 4, step.c % 4, step.c / 4 % 4};
        return check(zero_rebalance(optim_, step.a % 2 ? owners : nullptr,
                                    step.a % 2 ? registered_ : 0, nullptr));
      }
    }
  }

  void* grad(const Step& step) {
    for (size_t i = 0; i < 64; i++) grads_[step.a % kTensors][i] = odd_double(step.c);
    return step.b % 4 ? grads_[step.a % kTensors] : nullptr;
  }

  void reduce(const Step& step) {
    double norm = 0;
    switch (step.what % 8) {
      case 0:
        return check(zero_reduce_grads(optim_, nullptr, 0, step.b % 8, nullptr));
      case 1: {
        void* grads[kTensors] = {grads_[0], step.a & 1 ? grads_[1] : nullptr, grads_[2], grads_[3]};
        return check(zero_reduce_grads(optim_, grads, registered_, step.b % 8, nullptr));
      }
      case 2:
        return check(zero_clip_grad_value(optim_, odd_double(step.a), nullptr));
      case 3: {
        const int64_t params[2] = {odd_number(step.a), odd_number(step.b)};
        return check(zero_clip_grad_norm(optim_, step.c % 2 ? params : nullptr,
                                         step.c % 2 ? step.c % 3 : 0, odd_double(step.a),
                                         odd_double(step.b), &norm, nullptr));
      }
      case 4:
        return check(zero_drop_grads(optim_));
      case 5:
        return check(zero_grad_get(optim_, odd_number(step.a), odd_number(step.b),
                                   std::min<int64_t>(odd_number(step.c), kRoom), values_));
      case 6:
        return check(zero_share_params(optim_, step.a % 3, nullptr));
      default: {
        constexpr const char* kSettings[] = {"lr", "weight_decay", "loss_scale", "amsgrad", "no"};
        return check(zero_group_set(optim_, static_cast<int32_t>(odd_number(step.a)),
                                    kSettings[step.b % 5], odd_double(step.c)));
      }
    }
  }

  void look(const Step& step) {
    constexpr const char* kSlots[] = {"exp_avg", "momentum_buffer", "master", "step", nullptr, "?"};
    const char* const slot = kSlots[step.b % std::size(kSlots)];
    const int64_t param = odd_number(step.a), first = odd_number(step.c);
    const int64_t count = std::min<int64_t>(odd_number(step.b), kRoom);
    size_t found = 0;
    switch (step.what % 10) {
      case 0: {
        const char* names[4];
        return check(zero_state_info(optim_, param, nullptr, names, step.b % 5, &found));
      }
      case 1:
        return check(zero_state_get(optim_, param, slot, first, count, values_));
      case 2:
        return check(zero_state_set(optim_, param, slot, first, count, values_));
      case 3:
        return check(zero_state_gather(optim_, param, slot, static_cast<int32_t>(first), values_,
                                       step.b % 2 ? static_cast<size_t>(step.b) : kRoom));
      case 4: {
        auto statistics = initialized<zero_statistics>();
        return check(zero_stats(optim_, &statistics));
      }
      case 5: {
        auto result = initialized<zero_result>();
        (void)zero_step_result(optim_, &result);
        return;
      }
      case 6: {
        int64_t ranges[3 * 8];
        return check(
            zero_owned_ranges(optim_, static_cast<int32_t>(param), ranges, step.b % 9, &found));
      }
      case 7: {
        auto failure = initialized<zero_failure>();
        return check(zero_comm_failure(comm_, &failure));
      }
      case 8: {
        void* data[kTensors] = {memory_[3], memory_[2], memory_[1], memory_[0]};
        return check(zero_bind_params(optim_, data, nullptr, registered_ + (step.a > 250)));
      }
      default:
        return check(zero_param_index(optim_, step.a % 2 ? "w0" : "", &first_));
    }
  }

  /// Makes saves, loads, and calls on extras.
  void keep(const Step& step) {
    const std::string place = job_.folder + "/" + std::to_string(step.a % 2);
    size_t count = 0;
    int32_t done = 0;
    auto options = initialized<zero_save_options>();
    options.flags = step.b % 2;
    switch (step.what % 8) {
      case 0:
        return check(zero_state_save(optim_, place.c_str(), &options));
      case 1:
        return check(zero_state_save_begin(optim_, place.c_str(), &options));
      case 2:
        return check(zero_state_save_poll(optim_, &done));
      case 3:
        return check(zero_state_save_wait(optim_));
      case 4:
        return check(zero_state_load(optim_, job_.folder.c_str(), nullptr));
      case 5:
        return check(zero_state_extra_set(optim_, step.a % 2 ? "seed" : "", values_, step.b));
      case 6: {
        const char* names[2];
        int32_t ranks[2];
        return check(zero_state_extra_list(optim_, ranks, names, step.a % 3, &count));
      }
      default:
        return check(zero_state_extra_get(optim_, static_cast<int32_t>(odd_number(step.a)), "seed",
                                          values_, step.b, &count));
    }
  }

  /// Makes calls on the comm, and creates optimizers.
  void talk(const Step& step) {
    switch (step.what % 7) {
      case 0:
        return check(zero_comm_barrier(comm_));
      case 1:
        return check(zero_comm_broadcast(comm_, values_, 8u * step.a,
                                         static_cast<int32_t>(odd_number(step.b))));
      case 2:
        return check(zero_comm_all_reduce(comm_, values_, step.a, step.b % 8, step.c % 5));
      case 3:
        if (child_ != nullptr) return;
        return check(
            zero_comm_split(&child_, comm_, static_cast<int32_t>(odd_number(step.a)), step.b));
      case 4:
        if (arena_ == nullptr)
          return check(zero_arena_alloc(comm_, step.a * size_t{64}, step.b % 4, &arena_));
        check(zero_arena_free(arena_));
        arena_ = nullptr;
        return;
      case 5:
        if (step.a > 16) return;
        return check(zero_comm_abort(comm_, step.b % 2 ? "fuzzed" : nullptr));
      default:
        check(zero_free(optim_));
        optim_ = nullptr;
        registered_ = 0;
        return create();
    }
  }

  const Job& job_;
  const int rank_;
  zero_comm *comm_ = nullptr, *child_ = nullptr;
  zero_optim* optim_ = nullptr;
  void* arena_ = nullptr;
  size_t registered_ = 0;
  int64_t first_ = 0;
  double memory_[kTensors][kRoom] = {}, grads_[kTensors][kRoom] = {}, buffers_[3][64] = {};
  double values_[kRoom] = {};
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const zero::test::Scratch scratch;
  const zero::fuzz::SameDescriptors same;
  zero::fuzz::Input input(data, size);
  Job job{zero::test::unique_name(), scratch.path(), 1 + static_cast<int>(input.below(3)), {}, {}};
  job.options = input.take<Step>();
  while (!input.empty() && job.steps.size() < 40) job.steps.push_back(input.take<Step>());
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < job.world; rank++)
      ranks.emplace_back([&job, rank] { std::make_unique<Rank>(job, rank)->run(); });
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path()))
    std::filesystem::remove_all(entry.path());
  return 0;
}
