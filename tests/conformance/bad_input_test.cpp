// SPDX-License-Identifier: Apache-2.0
// Whatever callers hand over wrongly is a status and a sentence, without effect; inside a
// collective call the culprit gets its own code, the others ZERO_ERR_PEER with the same sentence,
// and the comm stays usable.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "support/ranks.h"
#include "zero.h"

namespace zero::test {
namespace {

std::string last() { return zero_last_error(); }

::testing::AssertionResult says(const char* words) {
  if (last().find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << last() << "' does not say '" << words << "'";
}

/// A solo comm with one optimizer of two parameters.
class BadInput : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK);
    ASSERT_EQ(zero_create(&optim, comm, nullptr), ZERO_OK);
  }
  void TearDown() override {
    EXPECT_EQ(zero_free(optim), ZERO_OK);
    EXPECT_EQ(zero_comm_free(comm), ZERO_OK);
  }

  zero_param param(const char* name, float* data, const int64_t* shape, int32_t ndim = 1) {
    zero_param out;
    zero_param_init(&out, sizeof out);
    out.name = name;
    out.data = data;
    out.shape = shape;
    out.ndim = ndim;
    return out;
  }
  zero_status add(const zero_param& one) {
    return zero_register_params(optim, nullptr, &one, 1, nullptr);
  }
  void add_one() {
    zero_param one = param("w", data, &shape);
    one.grad = grad;
    ASSERT_EQ(add(one), ZERO_OK);
  }

  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  float data[16] = {}, grad[16] = {};
  int64_t shape = 8;
};

TEST_F(BadInput, handles_that_are_null_closed_or_foreign_are_refused) {
  EXPECT_EQ(zero_comm_barrier(nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("the comm handle is NULL"));
  int somewhere = 0;
  EXPECT_EQ(zero_comm_barrier(reinterpret_cast<zero_comm*>(&somewhere)), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("none of libzero's"));
  EXPECT_EQ(zero_comm_barrier(reinterpret_cast<zero_comm*>(optim)), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("of another kind"));
  zero_comm* closed = nullptr;
  ASSERT_EQ(zero_comm_create_solo(&closed, nullptr), ZERO_OK);
  ASSERT_EQ(zero_comm_free(closed), ZERO_OK);
  EXPECT_EQ(zero_comm_free(closed), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("freed already"));
  EXPECT_EQ(zero_comm_rank(closed), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_create(&optim, closed, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_step(nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_free(nullptr), ZERO_OK);
  EXPECT_EQ(zero_comm_free(nullptr), ZERO_OK);
  EXPECT_EQ(zero_arena_free(nullptr), ZERO_OK);
  EXPECT_EQ(zero_arena_free(&somewhere), ZERO_ERR_ARGUMENT);
}

TEST_F(BadInput, an_arena_given_up_stays_while_parameters_are_in_it) {
  float *params = nullptr, *grads = nullptr;
  const size_t bytes = size_t{64} << 20;  // freed, it would be unmapped at once
  ASSERT_EQ(zero_arena_alloc(comm, bytes, ZERO_MEMORY_SHARED, reinterpret_cast<void**>(&params)),
            ZERO_OK);
  ASSERT_EQ(zero_arena_alloc(comm, bytes, ZERO_MEMORY_PER_RANK, reinterpret_cast<void**>(&grads)),
            ZERO_OK);
  zero_param one = param("w", params, &shape);
  one.grad = grads;
  grads[0] = 1;
  ASSERT_EQ(add(one), ZERO_OK);
  EXPECT_EQ(zero_arena_free(params), ZERO_OK);
  EXPECT_EQ(zero_arena_free(grads), ZERO_OK);
  EXPECT_EQ(zero_arena_free(grads), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
  EXPECT_LT(params[0], 0);
  void* const elsewhere = data;
  void* const grads_elsewhere = grad;
  ASSERT_EQ(zero_bind_params(optim, &elsewhere, &grads_elsewhere, 1), ZERO_OK);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
}

TEST_F(BadInput, a_new_handle_is_never_an_old_one) {
  zero_comm* first = nullptr;
  zero_comm* second = nullptr;
  zero_comm_create_solo(&first, nullptr);
  zero_comm_free(first);
  zero_comm_create_solo(&second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(zero_comm_barrier(first), ZERO_ERR_ARGUMENT);
  zero_comm_free(second);
}

TEST_F(BadInput, struct_sizes_that_no_version_has_are_refused) {
  zero_options options{};
  zero_optim* out = nullptr;
  EXPECT_EQ(zero_create(&out, comm, &options), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("zero_options.struct_size is 0"));
  options.struct_size = 12;
  EXPECT_EQ(zero_create(&out, comm, &options), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_options_init(&options, 3), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_options_init(nullptr, sizeof options), ZERO_ERR_ARGUMENT);
}

TEST_F(BadInput, a_newer_callers_unknown_field_must_be_zero) {
  struct Newer {
    zero_options known;
    int64_t unknown[2];
  } newer;
  ASSERT_EQ(zero_options_init(&newer.known, sizeof newer), ZERO_OK);
  zero_optim* out = nullptr;
  ASSERT_EQ(zero_create(&out, comm, &newer.known), ZERO_OK);
  zero_free(out);
  newer.unknown[1] = 7;
  EXPECT_EQ(zero_create(&out, comm, &newer.known), ZERO_ERR_UNSUPPORTED);
}

TEST_F(BadInput, options_out_of_range_are_named) {
  const struct {
    std::function<void(zero_options&)> change;
    const char* words;
  } cases[] = {
      {[](zero_options& o) { o.optimizer = 77; }, "optimizer is 77"},
      {[](zero_options& o) { o.partition = -1; }, "partition is -1"},
      {[](zero_options& o) { o.master = 2; }, "master is 2"},
      {[](zero_options& o) { o.wire_dtype = ZERO_FLOAT32; }, "wire_dtype is 1"},
      {[](zero_options& o) { o.nonfinite = 3; }, "nonfinite is 3"},
      {[](zero_options& o) { o.bucket_bytes = 100; }, "bucket_bytes is 100"},
      {[](zero_options& o) { o.bucket_bytes = -4096; }, "bucket_bytes"},
      {[](zero_options& o) { o.max_grad_norm = -1; }, "max_grad_norm"},
      {[](zero_options& o) { o.max_grad_norm = NAN; }, "max_grad_norm"},
      {[](zero_options& o) { o.max_grad_norm = INFINITY; }, "max_grad_norm"},
      {[](zero_options& o) { o.grad_norm_type = -2; }, "grad_norm_type"},
      {[](zero_options& o) { o.nonfinite = 9; }, "nonfinite is 9"},
      {[](zero_options& o) { o.threads = 65; }, "threads is 65"},
      {[](zero_options& o) { o.threads = -1; }, "threads is -1"},
      {[](zero_options& o) { o.setting_count = 1; }, "names or values is NULL"},
  };
  for (const auto& one : cases) {
    zero_options options;
    zero_options_init(&options, sizeof options);
    one.change(options);
    zero_optim* out = nullptr;
    EXPECT_EQ(zero_create(&out, comm, &options), ZERO_ERR_ARGUMENT) << one.words;
    EXPECT_TRUE(says(one.words));
    EXPECT_EQ(out, nullptr);
  }
}

TEST_F(BadInput, settings_out_of_range_or_unknown_are_named) {
  const struct {
    const char* name;
    double value;
  } cases[] = {{"lr", -1},        {"lr", NAN},     {"lr", INFINITY}, {"beta1", 1},
               {"beta1", -0.1},   {"beta2", 2},    {"eps", -1e-8},   {"amsgrad", 0.5},
               {"momentum", 0.9}, {"nonsense", 0}, {"", 0},          {"weight_decay", -1}};
  add_one();
  for (const auto& one : cases) {
    EXPECT_EQ(zero_group_set(optim, 0, one.name, one.value), ZERO_ERR_ARGUMENT)
        << one.name << " " << one.value;
    EXPECT_TRUE(says(one.name));
    zero_group_options group;
    zero_group_options_init(&group, sizeof group);
    group.names = &one.name;
    group.values = &one.value;
    group.setting_count = 1;
    float other[8];
    const zero_param more = param("more", other, &shape);
    EXPECT_EQ(zero_register_params(optim, &group, &more, 1, nullptr), ZERO_ERR_ARGUMENT)
        << one.name;
  }
  EXPECT_EQ(zero_group_set(optim, 1, "lr", 0.1), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_group_set(optim, -2, "lr", 0.1), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_group_set(optim, 0, "amsgrad", 1), ZERO_ERR_STATE);
  double lr = 0;
  EXPECT_EQ(zero_group_get(optim, 0, "lr", &lr), ZERO_OK);
  EXPECT_EQ(lr, 1e-3);
}

TEST_F(BadInput, a_dtype_of_zero_is_the_default) {
  zero_param one = param("w", data, &shape);
  one.dtype = 0;
  EXPECT_EQ(add(one), ZERO_OK);
}

TEST_F(BadInput, parameters_that_make_no_sense_are_named_and_none_is_added) {
  const int64_t negative = -1;
  const int64_t huge[3] = {int64_t{1} << 40, int64_t{1} << 40, 2};
  const std::string long_name(4097, 'x');
  EXPECT_EQ(add(param("", data, &shape)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param(nullptr, data, &shape)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param(long_name.c_str(), data, &shape)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("bad \xff utf-8", data, &shape)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("w", data, &negative)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("w", data, huge, 3)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("w", data, nullptr)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("w", data, &shape, -1)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("w", data, &shape, 17)), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(add(param("w", reinterpret_cast<float*>(reinterpret_cast<char*>(data) + 2), &shape)),
            ZERO_ERR_ARGUMENT);
  zero_param one = param("w", data, &shape);
  one.dtype = 99;
  EXPECT_EQ(add(one), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("dtype 99 is unknown"));
  one.dtype = ZERO_INT32;
  EXPECT_EQ(add(one), ZERO_ERR_UNSUPPORTED);
  EXPECT_TRUE(says("dtype int32 cannot be trained"));
  one = param("w", data, &shape);
  one.grad_dtype = 7;
  EXPECT_EQ(add(one), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("grad_dtype 7 is unknown"));
  one = param("w", data + 1, &shape);
  one.dtype = ZERO_FLOAT64;
  EXPECT_EQ(add(one), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("not aligned"));
  one = param("w", data, &shape);
  one.flags = 1 << 20;
  EXPECT_EQ(add(one), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_register_params(optim, nullptr, nullptr, 1, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_register_params(optim, nullptr, &one, 0, nullptr), ZERO_ERR_ARGUMENT);
  // The first of two is sound, but none is added.
  zero_param two[2] = {param("a", data, &shape), param("a", data + 8, &shape)};
  EXPECT_EQ(zero_register_params(optim, nullptr, two, 2, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("'a' is registered twice"));
  int64_t index = 0;
  EXPECT_EQ(zero_param_index(optim, "a", &index), ZERO_ERR_ARGUMENT);
  add_one();
  EXPECT_EQ(add(param("w", data + 8, &shape)), ZERO_ERR_ARGUMENT);
}

TEST_F(BadInput, overlapping_memory_is_refused_with_both_names) {
  add_one();
  EXPECT_EQ(add(param("v", data + 7, &shape)), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("'v'"));
  EXPECT_TRUE(says("'w'"));
  EXPECT_EQ(add(param("v", data, &shape)), ZERO_ERR_ARGUMENT);
  zero_param v = param("v", data + 8, &shape);
  v.grad = grad + 4;
  EXPECT_EQ(add(v), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(says("gradient of parameter 'w'"));
  v.grad = data;
  EXPECT_EQ(add(v), ZERO_ERR_ARGUMENT);
  v.grad = grad + 8;
  EXPECT_EQ(add(v), ZERO_OK);
  void* both[2] = {data, data + 4};
  EXPECT_EQ(zero_bind_params(optim, both, nullptr, 2), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_bind_params(optim, both, nullptr, 1), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_reduce_grads(optim, both, 2, 0, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_reduce_grads(optim, both, 1, 0, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
}

TEST_F(BadInput, calls_in_the_wrong_phase_are_refused) {
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_ERR_STATE);
  EXPECT_TRUE(says("no parameters are registered"));
  size_t count = 0;
  EXPECT_EQ(zero_owned_ranges(optim, 0, nullptr, 0, &count), ZERO_ERR_STATE);
  zero_param unbound = param("w", nullptr, &shape);
  ASSERT_EQ(add(unbound), ZERO_OK);
  EXPECT_EQ(zero_seal(optim), ZERO_ERR_STATE);
  EXPECT_TRUE(says("'w' has no memory yet"));
  void* address = data;
  ASSERT_EQ(zero_bind_params(optim, &address, nullptr, 1), ZERO_OK);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_ERR_STATE);
  EXPECT_TRUE(says("no rank has a gradient"));
  void* gradient = grad;
  ASSERT_EQ(zero_reduce_grads(optim, &gradient, 1, 0, nullptr), ZERO_OK);
  EXPECT_EQ(zero_reduce_grads(optim, &gradient, 1, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_bind_params(optim, &address, nullptr, 1), ZERO_ERR_STATE);
  float more[8];
  EXPECT_EQ(add(param("more", more, &shape)), ZERO_ERR_STATE);
  EXPECT_EQ(zero_broadcast_params(optim, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_save(optim, "/tmp/never-written", nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_load(optim, "/tmp/never-written", nullptr), ZERO_ERR_STATE);
  zero_step_options options;
  zero_step_options_init(&options, sizeof options);
  options.grads = &gradient;
  options.grad_count = 1;
  EXPECT_EQ(zero_step(optim, &options), ZERO_ERR_STATE);
  EXPECT_EQ(zero_drop_grads(optim), ZERO_OK);
  EXPECT_EQ(zero_drop_grads(optim), ZERO_OK);
  EXPECT_EQ(zero_step(optim, &options), ZERO_OK);
}

TEST_F(BadInput, arguments_of_the_loop_are_checked) {
  add_one();
  int stream = 0;
  EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 77, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 0, &stream), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_broadcast_params(optim, 1, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_broadcast_params(optim, -2, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_norm(optim, 0, 2, nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_norm(optim, NAN, 2, nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_norm(optim, 1, 0, nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_state_save(optim, nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_state_save(optim, "", nullptr), ZERO_ERR_ARGUMENT);
  void* arena = nullptr;
  EXPECT_EQ(zero_arena_alloc(comm, 0, ZERO_MEMORY_SHARED, &arena), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_arena_alloc(comm, 64, 0, &arena), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_arena_alloc(comm, 64, ZERO_MEMORY_SHARED, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(
      zero_arena_alloc(comm, std::numeric_limits<size_t>::max() / 2, ZERO_MEMORY_SHARED, &arena),
      ZERO_ERR_MEMORY);
  EXPECT_EQ(zero_comm_create_local(&comm, "x", 2, 2, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_comm_create_local(&comm, "", 0, 1, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_comm_create_local(&comm, nullptr, 0, 1, nullptr), ZERO_ERR_ARGUMENT);
  float value = 0;
  EXPECT_EQ(zero_comm_broadcast(comm, &value, 4, 1), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_comm_all_reduce(comm, &value, 1, 9, ZERO_SUM), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_comm_all_reduce(comm, &value, 1, ZERO_FLOAT32, 9), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
}

TEST_F(BadInput, a_forked_child_is_refused_everything) {
  add_one();
  const pid_t child = fork();
  if (child == 0) {
    zero_comm* other = nullptr;
    const bool refused = zero_comm_create_solo(&other, nullptr) == ZERO_ERR_FORKED &&
                         zero_comm_barrier(comm) == ZERO_ERR_FORKED &&
                         zero_step(optim, nullptr) == ZERO_ERR_FORKED &&
                         zero_free(optim) == ZERO_ERR_FORKED &&
                         zero_comm_free(comm) == ZERO_ERR_FORKED &&
                         zero_comm_abort(comm, "no") == ZERO_ERR_FORKED && says("forked");
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(zero_step(optim, nullptr), ZERO_OK);
}

// ---- Between ranks.

struct Seat {
  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  std::vector<float> data, grad;
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  ~Seat() {
    zero_free(optim);
    zero_comm_free(comm);
  }
};

void join(Seat& seat, const std::string& name, int rank, int world) {
  zero_comm_options options;
  zero_comm_options_init(&options, sizeof options);
  options.timeout_ms = options.late_ms = options.rendezvous_ms = 30'000;
  ASSERT_EQ(zero_comm_create_local(&seat.comm, name.c_str(), rank, world, &options), ZERO_OK)
      << last();
}

std::string fresh_name() {
  static int next = 0;
  return "bad-input-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}

struct Registration {
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t partition = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 1 << 20;
  double max_grad_norm = 0, lr = 1e-3;
  std::vector<std::string> names = {"a", "b", "c"};
  std::vector<std::vector<int64_t>> shapes = {{10}, {10}, {5, 4}};
  int32_t owner = 0;
  int64_t order = 0;
  int32_t dtype = ZERO_FLOAT32, grad_dtype = ZERO_FLOAT32;  // of "c"
  int32_t master = ZERO_MASTER_FLOAT32, wire_dtype = 0;
  double loss_scale = 0, growth_factor = 2;
};

void register_on(Seat& seat, const Registration& registration) {
  zero_options options;
  zero_options_init(&options, sizeof options);
  options.optimizer = registration.optimizer;
  options.partition = registration.partition;
  options.bucket_bytes = registration.bucket_bytes;
  options.max_grad_norm = registration.max_grad_norm;
  options.master = registration.master;
  options.wire_dtype = registration.wire_dtype;
  options.loss_scale = registration.loss_scale;
  options.growth_factor = registration.growth_factor;
  const char* name = "lr";
  options.names = &name;
  options.values = &registration.lr;
  options.setting_count = 1;
  ASSERT_EQ(zero_create(&seat.optim, seat.comm, &options), ZERO_OK) << last();
  seat.data.assign(4096, 1);
  seat.grad.assign(4096, 1);
  std::vector<zero_param> params(registration.names.size());
  for (size_t i = 0; i < params.size(); i++) {
    zero_param_init(&params[i], sizeof params[i]);
    params[i].name = registration.names[i].c_str();
    if (registration.names[i] == "c") {
      params[i].dtype = registration.dtype;
      params[i].grad_dtype = registration.grad_dtype;
    }
    params[i].shape = registration.shapes[i].data();
    params[i].ndim = static_cast<int32_t>(registration.shapes[i].size());
    params[i].data = seat.data.data() + i * 512;
    params[i].grad = seat.grad.data() + i * 512;
    params[i].owner = registration.owner;
    params[i].order = registration.order;
    if (registration.order != 0) params[i].flags |= ZERO_PARAM_ORDER;
  }
  ASSERT_EQ(zero_register_params(seat.optim, nullptr, params.data(), params.size(), nullptr),
            ZERO_OK)
      << last();
}

TEST(BadInputOfRanks, a_registration_that_differs_is_named_on_every_rank_and_the_comm_stays) {
  const struct {
    const char* words;
    std::function<void(Registration&)> change;
  } cases[] = {
      {"'B'", [](Registration& r) { r.names[1] = "B"; }},
      {"'a'", [](Registration& r) { std::swap(r.names[0], r.names[1]); }},
      {"'c'",
       [](Registration& r) {
         r.shapes[2] = {4, 5};
       }},
      {"'c'", [](Registration& r) { r.shapes[2] = {20}; }},
      {"'b' with 11 elements", [](Registration& r) { r.shapes[1] = {11}; }},
      {"'c'", [](Registration& r) { r.names.pop_back(); }},
      {"'d'",
       [](Registration& r) {
         r.names.push_back("d");
         r.shapes.push_back({1});
       }},
      {"sgd", [](Registration& r) { r.optimizer = ZERO_OPTIMIZER_SGD; }},
      {"partition 1", [](Registration& r) { r.partition = ZERO_PARTITION_GREEDY; }},
      {"bucket_bytes 4096", [](Registration& r) { r.bucket_bytes = 4096; }},
      {"max_grad_norm", [](Registration& r) { r.max_grad_norm = 1; }},
      {"lr", [](Registration& r) { r.lr = std::nextafter(1e-3, 1); }},
      {"order 5", [](Registration& r) { r.order = 5; }},
      {"owner 1", [](Registration& r) { r.owner = 1; }},
      {"bfloat16 [5x4]", [](Registration& r) { r.dtype = ZERO_BFLOAT16; }},
      {"gradient float16", [](Registration& r) { r.grad_dtype = ZERO_FLOAT16; }},
      {"master 1", [](Registration& r) { r.master = ZERO_MASTER_REMAINDER; }},
      {"wire_dtype bfloat16", [](Registration& r) { r.wire_dtype = ZERO_BFLOAT16; }},
      {"dynamic loss scale", [](Registration& r) { r.loss_scale = 8; }},
      {"growth_factor", [](Registration& r) { r.growth_factor = std::nextafter(2, 3); }},
  };
  for (int world = 2; world <= 4; world++) {
    for (int odd = 0; odd < world; odd++) {
      const std::string name = fresh_name();
      const std::vector<std::string> texts =
          run_sound_ranks(RankKind::threads, world, [&](int rank) {
            Seat seat;
            join(seat, name, rank, world);
            std::string all;
            for (const auto& one : cases) {
              Registration registration;
              if (rank == odd) one.change(registration);
              register_on(seat, registration);
              const zero_status status = zero_step(seat.optim, nullptr);
              const bool culprit = world == 2 ? rank == 1 : rank == odd;
              EXPECT_EQ(status, culprit ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER)
                  << one.words << ": " << last();
              EXPECT_TRUE(says(one.words));
              all += last() + "\n";
              zero_free(seat.optim);
              seat.optim = nullptr;
              EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_OK) << last();
            }
            return all;
          });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadInputOfRanks, one_ranks_mistake_in_a_collective_call_is_told_to_all_at_once) {
  const struct {
    zero_status code;
    std::function<zero_status(Seat&)> mistake, right;
  } cases[] = {
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) { return zero_reduce_grads(s.optim, nullptr, 0, 99, nullptr); },
       [](Seat& s) { return zero_reduce_grads(s.optim, nullptr, 0, 0, nullptr); }},
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) { return zero_clip_grad_norm(s.optim, -1, 2, nullptr, nullptr); },
       [](Seat& s) { return zero_clip_grad_norm(s.optim, 1, 2, nullptr, nullptr); }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_broadcast_params(s.optim, 9, nullptr); },
       [](Seat& s) { return zero_broadcast_params(s.optim, 0, nullptr); }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_state_save(s.optim, "", nullptr); },
       [](Seat& s) {
         return zero_state_save(s.optim, "/nonexistent-directory-of-libzero-tests/x", nullptr);
       }},
      {ZERO_ERR_ARGUMENT, [](Seat& s) { return zero_comm_broadcast(s.comm, nullptr, 4, 0); },
       [](Seat& s) { return zero_comm_broadcast(s.comm, s.data.data(), 4, 0); }},
      {ZERO_ERR_ARGUMENT,
       [](Seat& s) {
         void* p;
         return zero_arena_alloc(s.comm, 0, ZERO_MEMORY_SHARED, &p);
       },
       [](Seat& s) {
         void* p;
         return zero_arena_alloc(s.comm, 64, ZERO_MEMORY_SHARED, &p);
       }},
  };
  const std::string name = fresh_name();
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Seat seat;
    join(seat, name, rank, 3);
    register_on(seat, Registration{});
    EXPECT_EQ(zero_seal(seat.optim), ZERO_OK) << last();
    for (const auto& one : cases) {
      for (int odd = 0; odd < 3; odd++) {
        const zero_status status = rank == odd ? one.mistake(seat) : one.right(seat);
        EXPECT_EQ(status, rank == odd ? one.code : ZERO_ERR_PEER) << last();
        if (rank != odd) {
          EXPECT_TRUE(says(("rank " + std::to_string(odd)).c_str()));
        }
        EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_OK) << last();
      }
    }
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
    return std::string();
  });
}

TEST(BadInputOfRanks, settings_that_differ_at_a_step_are_named_and_nothing_moves) {
  const std::string name = fresh_name();
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    Seat seat;
    join(seat, name, rank, 3);
    register_on(seat, Registration{});
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
    const std::vector<float> before = seat.data;
    EXPECT_EQ(zero_group_set(seat.optim, 0, "lr", rank == 1 ? 0.2 : 0.1), ZERO_OK);
    EXPECT_EQ(zero_step(seat.optim, nullptr), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER);
    EXPECT_TRUE(says("lr"));
    EXPECT_EQ(seat.data, before);
    EXPECT_EQ(zero_group_set(seat.optim, 0, "lr", 0.1), ZERO_OK);
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
    return std::string();
  });
}

TEST(BadInputOfRanks, different_calls_name_both_sides_at_once) {
  const std::function<zero_status(Seat&)> calls[] = {
      [](Seat& s) { return zero_comm_barrier(s.comm); },
      [](Seat& s) { return zero_step(s.optim, nullptr); },
      [](Seat& s) { return zero_reduce_grads(s.optim, nullptr, 0, 0, nullptr); },
      [](Seat& s) { return zero_clip_grad_norm(s.optim, 1, 2, nullptr, nullptr); },
      [](Seat& s) { return zero_broadcast_params(s.optim, 0, nullptr); },
      [](Seat& s) { return zero_seal(s.optim); },
      [](Seat& s) { return zero_state_save(s.optim, "/tmp/x", nullptr); },
      [](Seat& s) { return zero_state_load(s.optim, "/tmp/x", nullptr); },
      [](Seat& s) { return zero_comm_broadcast(s.comm, s.data.data(), 4, 0); },
      [](Seat& s) {
        return zero_comm_all_reduce(s.comm, s.data.data(), 1, ZERO_FLOAT32, ZERO_SUM);
      },
      [](Seat& s) {
        zero_comm* child = nullptr;
        return zero_comm_split(&child, s.comm, 0, 0);
      },
      [](Seat& s) {
        void* p;
        return zero_arena_alloc(s.comm, 64, ZERO_MEMORY_SHARED, &p);
      },
  };
  for (size_t a = 0; a < std::size(calls); a++) {
    for (size_t b = 0; b < std::size(calls); b++) {
      if (a == b) continue;
      const std::string name = fresh_name();
      run_sound_ranks(RankKind::threads, 2, [&](int rank) {
        Seat seat;
        join(seat, name, rank, 2);
        register_on(seat, Registration{});
        EXPECT_EQ(calls[rank == 0 ? a : b](seat), ZERO_ERR_DESYNC)
            << a << ", " << b << ": " << last();
        EXPECT_TRUE(says("rank 0"));
        EXPECT_TRUE(says("rank 1"));
        EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_ERR_DESYNC);
        return std::string();
      });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(BadInputOfRanks, two_threads_in_one_handle_make_one_of_them_busy) {
  const std::string name = fresh_name();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    Seat seat;
    join(seat, name, rank, 2);
    register_on(seat, Registration{});
    if (rank == 1) {
      // Until rank 1 comes, rank 0's first thread is inside.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_OK) << last();
      return std::string();
    }
    zero_status inside = -1;
    std::thread first([&] { inside = zero_step(seat.optim, nullptr); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(zero_group_set(seat.optim, 0, "lr", 0.1), ZERO_ERR_BUSY);
    EXPECT_EQ(zero_step(seat.optim, nullptr), ZERO_ERR_BUSY);
    EXPECT_EQ(zero_comm_barrier(seat.comm), ZERO_ERR_BUSY);
    first.join();
    EXPECT_EQ(inside, ZERO_OK);
    return std::string();
  });
}

}  // namespace
}  // namespace zero::test
