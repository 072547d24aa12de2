// SPDX-License-Identifier: Apache-2.0
#include "fault/malloc_lives.h"

#include <cstdlib>
#include <vector>

#include "support/vector_param.h"

namespace zero::test {
namespace {

constexpr int64_t kDeadlineMs = 20'000;
constexpr char kLong[] = "an extra that is too long to be kept without memory of its own";
constexpr int64_t kFirst = 3000, kSecond = 777;  // elements of "a" and "b"

/// Holds the objects of a life, remembers its first failure, and makes no call after that.
class Seat {
 public:
  explicit Seat(const LifeOf& of) : of_(of) {
    ZERO_INIT(deadlines);
    deadlines.timeout_ms = deadlines.late_ms = kDeadlineMs;
    deadlines.rendezvous_ms = of.rendezvous_ms;
  }
  ~Seat() {
    zero_free(optim);
    zero_comm_free(child);
    if (data != nullptr) zero_arena_free(data);
    if (grad != nullptr) zero_arena_free(grad);
    zero_comm_free(comm);
  }

  /// Makes a call with `made`, unless an earlier call has failed.
  template <class Made>
  Seat& then(const char* call, const Made& made) {
    if (end_.status < 0) return *this;
    end_.status = made();
    if (end_.status < 0) {
      end_.call = call;
      end_.text = zero_last_error();
    }
    return *this;
  }

  Seat& meet() {
    return then("create_local", [&] {
      return zero_comm_create_local(&comm, of_.name.c_str(), of_.rank, of_.world, &deadlines);
    });
  }
  Seat& arenas() {
    then("arena_alloc",
         [&] { return zero_arena_alloc(comm, kFirst * sizeof(float), ZERO_MEMORY_SHARED, &data); });
    return then("arena_alloc of gradients", [&] {
      return zero_arena_alloc(comm, kFirst * sizeof(float), ZERO_MEMORY_PER_RANK, &grad);
    });
  }
  Seat& create(const zero_options& options) {
    return then("create", [&] { return zero_create(&optim, comm, &options); });
  }
  /// Registers "a" in arenas, if there are any, and "b" in memory of the program.
  Seat& enroll() {
    if (data == nullptr) a.assign(kFirst, 1), a_grad.assign(kFirst, 0.5f);
    b.assign(kSecond, 1);
    b_grad.assign(kSecond, 0.25f);
    const auto first = [](void* arena, std::vector<float>& own) {
      return std::span(arena != nullptr ? static_cast<float*>(arena) : own.data(), kFirst);
    };
    const auto enroll = [&] {
      return register_vectors(optim,
                              {{"a", first(data, a), first(grad, a_grad)}, {"b", b, b_grad}});
    };
    then("register_params", enroll);
    // A failed call has changed nothing, so it can be repeated.
    if (end_.call == "register_params" && end_.status == ZERO_ERR_MEMORY) {
      const zero_status again = enroll();
      if (again != ZERO_OK && again != ZERO_ERR_MEMORY)
        end_ = {ZERO_ERR_INTERNAL, "register_params again", zero_last_error()};
    }
    return *this;
  }
  Seat& step(const char* call = "step") {
    return then(call, [&] { return zero_step(optim, nullptr); });
  }
  LifeEnd end() { return end_; }

  zero_comm_options deadlines;
  zero_comm *comm = nullptr, *child = nullptr;
  zero_optim* optim = nullptr;
  void *data = nullptr, *grad = nullptr;
  std::vector<float> a, a_grad, b, b_grad;

 private:
  const LifeOf& of_;
  LifeEnd end_;
};

zero_options options_of(int32_t optimizer = ZERO_OPTIMIZER_ADAMW) {
  zero_options options;
  ZERO_INIT(options);
  options.optimizer = optimizer;
  options.threads = 2;
  return options;
}

/// Uses arenas, steps that end in the background, early sums, a checkpoint, a split, and new
/// owners.
LifeEnd train(const LifeOf& of) {
  Seat seat(of);
  zero_options options = options_of();
  options.overlap_gather = 1;
  seat.meet().arenas().create(options).enroll();
  seat.then("broadcast_params", [&] { return zero_broadcast_params(seat.optim, 0, nullptr); });
  for (int i = 0; i < 3; i++) {
    if (i == 1)
      seat.then("grad_ready", [&] { return zero_grad_ready(seat.optim, 0, seat.grad, nullptr); });
    seat.step();
    seat.then("param_wait", [&] { return zero_param_wait(seat.optim, 0, nullptr); });
  }
  const std::string place = of.folder + "/saved";
  seat.then("state_extra_set",
            [&] { return zero_state_extra_set(seat.optim, "position", kLong, sizeof kLong); });
  seat.then("state_save", [&] { return zero_state_save(seat.optim, place.c_str(), nullptr); });
  seat.then("state_load", [&] { return zero_state_load(seat.optim, of.folder.c_str(), nullptr); });
  zero_save_options again;
  ZERO_INIT(again);
  again.flags = ZERO_SAVE_REPLACE;
  seat.then("state_save again", [&] { return zero_state_save(seat.optim, place.c_str(), &again); });
  seat.then("comm_split", [&] { return zero_comm_split(&seat.child, seat.comm, 0, of.rank); });
  seat.then("barrier", [&] { return zero_comm_barrier(seat.child); });
  seat.then("rebalance", [&] { return zero_rebalance(seat.optim, nullptr, 0, nullptr); });
  seat.step("step behind it");
  return seat.end();
}

/// Reduces, clips and steps manually; reads, sets and gathers state; uses buffers and settings.
LifeEnd by_hand(const LifeOf& of) {
  Seat seat(of);
  seat.meet().arenas().create(options_of(ZERO_OPTIMIZER_NADAM)).enroll();
  std::vector<double> statistic(50, of.rank);
  const int64_t fifty = 50;
  zero_buffer buffer;
  ZERO_INIT(buffer);
  buffer.name = "mean";
  buffer.data = statistic.data();
  buffer.dtype = ZERO_FLOAT64;
  buffer.shape = &fifty;
  buffer.ndim = 1;
  zero_optim*& optim = seat.optim;
  seat.then("register_buffers", [&] { return zero_register_buffers(optim, &buffer, 1); });
  seat.then("seal", [&] { return zero_seal(optim); });
  seat.then("broadcast_buffers", [&] { return zero_broadcast_buffers(optim, 0, nullptr); });
  seat.then("group_set", [&] { return zero_group_set(optim, 0, "lr", 1e-2); });
  for (int i = 0; i < 2; i++)
    seat.then("reduce_grads", [&] {
      return zero_reduce_grads(optim, nullptr, 0, ZERO_REDUCE_ACCUMULATE, nullptr);
    });
  double norm = 0;
  seat.then("clip_grad_norm",
            [&] { return zero_clip_grad_norm(optim, nullptr, 0, 1, 2, &norm, nullptr); });
  seat.then("clip_grad_value", [&] { return zero_clip_grad_value(optim, 0.5, nullptr); });
  seat.step("step of what is reduced");
  std::vector<float> values(kFirst);
  seat.then("state_gather", [&] {
    return zero_state_gather(optim, 0, "exp_avg", ZERO_ALL_RANKS, values.data(), kFirst);
  });
  seat.then("state_set",
            [&] { return zero_state_set(optim, 0, "exp_avg", 0, kFirst, values.data()); });
  const double seven = 7;
  seat.then("state_set_scalar",
            [&] { return zero_state_set(optim, ZERO_ALL_PARAMS, "step", 0, 1, &seven); });
  seat.then("share_params", [&] { return zero_share_params(optim, 0, nullptr); });
  seat.then("set_trainable", [&] { return zero_param_set_trainable(optim, 1, 0); });
  seat.then("step_begin", [&] { return zero_step_begin(optim, nullptr); });
  seat.then("grad_ready", [&] { return zero_grad_ready(optim, 0, seat.grad, nullptr); });
  seat.step("step that has begun");
  int64_t ranges[60];
  size_t count = 0;
  seat.then("owned_ranges", [&] { return zero_owned_ranges(optim, 0, ranges, 20, &count); });
  zero_statistics statistics;
  ZERO_INIT(statistics);
  seat.then("stats", [&] { return zero_stats(optim, &statistics); });
  double sums[3] = {1, 2, 3};
  seat.then("all_reduce",
            [&] { return zero_comm_all_reduce(seat.comm, sums, 3, ZERO_FLOAT64, ZERO_SUM); });
  seat.then("broadcast", [&] { return zero_comm_broadcast(seat.comm, sums, sizeof sums, 0); });
  return seat.end();
}

/// The last rank runs out of inputs. Steps clip, scale and skip, with norms of tensors.
LifeEnd join(const LifeOf& of) {
  Seat seat(of);
  zero_options options = options_of(ZERO_OPTIMIZER_LAMB);
  options.uneven_inputs = ZERO_UNEVEN_ACTIVE;
  options.max_grad_norm = 1;
  options.loss_scale = 64;
  options.overlap_gather = 1;
  seat.meet().create(options).enroll();
  seat.then("broadcast_params", [&] { return zero_broadcast_params(seat.optim, 0, nullptr); });
  seat.step();
  if (of.rank != of.world - 1) seat.step("step of those with inputs").step();
  seat.then("join", [&] { return zero_join(seat.optim, nullptr, nullptr); });
  seat.step("step behind it");
  return seat.end();
}

zero_status half_step(void*, const zero_update* update) {
  auto* const values = static_cast<float*>(update->values);
  const auto* const gradient = static_cast<const float*>(update->gradient);
  for (int64_t i = 0; i < update->count; i++) values[i] -= 0.5f * gradient[i];
  return ZERO_OK;
}

/// A custom rule and the engine's collectives, in a group of one. An engine with more ranks would
/// wait for the failed rank with its own deadlines.
LifeEnd user(const LifeOf& of) {
  Seat seat(of);
  const bool taken = seat.then("create_user",
                               [&] {
                                 return zero_comm_create_user(&seat.comm, &of.functions, of.seat, 0,
                                                              1, &seat.deadlines);
                               })
                         .end()
                         .status == ZERO_OK;
  if (!taken) of.functions.free(of.seat);
  const char* const slots[] = {"seen"};
  zero_custom_optimizer custom;
  ZERO_INIT(custom);
  custom.name = "half";
  custom.update = half_step;
  custom.slots = slots;
  custom.slot_count = 1;
  zero_options options = options_of(ZERO_OPTIMIZER_CUSTOM);
  options.custom = &custom;
  seat.create(options).enroll();
  seat.then("broadcast_params", [&] { return zero_broadcast_params(seat.optim, 0, nullptr); });
  seat.step().step("second step");
  const std::string place = of.folder + "/saved-" + std::to_string(of.rank);
  seat.then("state_extra_set",
            [&] { return zero_state_extra_set(seat.optim, "position", kLong, sizeof kLong); });
  seat.then("state_save", [&] { return zero_state_save(seat.optim, place.c_str(), nullptr); });
  seat.then("state_load", [&] { return zero_state_load(seat.optim, place.c_str(), nullptr); });
  seat.then("comm_split", [&] { return zero_comm_split(&seat.child, seat.comm, 0, 0); });
  seat.then("barrier", [&] { return zero_comm_barrier(seat.child); });
  return seat.end();
}

/// As a launcher starts it, with half precision and refused calls.
LifeEnd launched(const LifeOf& of) {
  Seat seat(of);
  setenv("ZERO_RANK", std::to_string(of.rank).c_str(), 1);
  setenv("ZERO_WORLD_SIZE", std::to_string(of.world).c_str(), 1);
  setenv("ZERO_LOCAL_RANK", std::to_string(of.rank).c_str(), 1);
  setenv("ZERO_JOB", of.name.c_str(), 1);
  seat.then("create_env", [&] { return zero_comm_create_env(&seat.comm, &seat.deadlines); });
  zero_options options = options_of(ZERO_OPTIMIZER_SGD);
  options.share_dtype = ZERO_BFLOAT16;
  options.master = ZERO_MASTER_REMAINDER;
  options.wire_dtype = ZERO_BFLOAT16;
  seat.create(options).enroll().step();
  const std::string place = of.folder + "/saved";
  seat.then("state_save", [&] { return zero_state_save(seat.optim, place.c_str(), nullptr); });
  seat.then("refused save", [&] {
    const zero_status refused = zero_state_save(seat.optim, place.c_str(), nullptr);
    return refused == ZERO_ERR_STATE || refused == ZERO_ERR_PEER ? ZERO_OK : refused;
  });
  seat.then("refused load", [&] {
    const zero_status refused = zero_state_load(seat.optim, "/nowhere/at/all", nullptr);
    return refused == ZERO_ERR_CKPT_INVALID || refused == ZERO_ERR_PEER ? ZERO_OK : refused;
  });
  seat.then("barrier", [&] { return zero_comm_barrier(seat.comm); });
  seat.then("abort", [&] { return zero_comm_abort(seat.comm, "enough"); });
  seat.then("failure", [&] {
    zero_failure failure;
    ZERO_INIT(failure);
    return zero_comm_failure(seat.comm, &failure);
  });
  return seat.end();
}

constexpr Life kLives[] = {
    {"train", train}, {"by_hand", by_hand}, {"join", join}, {"user", user}, {"launched", launched}};

}  // namespace

std::span<const Life> all_lives() { return kLives; }

LifeEnd meet_again(const LifeOf& of) {
  Seat seat(of);
  seat.meet().create(options_of()).enroll().step();
  seat.then("barrier", [&] { return zero_comm_barrier(seat.comm); });
  return seat.end();
}

}  // namespace zero::test
