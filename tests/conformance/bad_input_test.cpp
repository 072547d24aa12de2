// SPDX-License-Identifier: Apache-2.0
// Every invalid argument returns a status and a sentence, and has no effect.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "support/comms.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {
namespace {

/// A solo comm with one optimizer of two parameters.
class BadInput : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(zero_create(&optim, comm, nullptr)); }
  void TearDown() override {
    EXPECT_OK(zero_free(optim));
    EXPECT_OK(zero_comm_free(comm));
  }

  zero_param param(const char* name, float* data, const int64_t* shape, int32_t ndim = 1) {
    auto out = initialized<zero_param>();
    out.name = name;
    out.data = data;
    out.shape = shape;
    out.ndim = ndim;
    return out;
  }
  zero_status add(const zero_param& one) {
    return zero_register_params(optim, nullptr, &one, 1, nullptr);
  }
  ::testing::AssertionResult refused(const zero_options& options, const char* words,
                                     zero_status code = ZERO_ERR_ARGUMENT) {
    zero_optim* out = nullptr;
    const auto result = ends(zero_create(&out, comm, &options), code, words);
    EXPECT_EQ(out, nullptr);
    return result;
  }
  void add_one() {
    zero_param one = param("w", data, &shape);
    one.grad = grad;
    ASSERT_OK(add(one));
  }

  zero_comm* comm = solo();
  zero_optim* optim = nullptr;
  float data[16] = {}, grad[16] = {};
  int64_t shape = 8;
};

TEST_F(BadInput, handles_that_are_null_closed_or_foreign_are_refused) {
  EXPECT_TRUE(ends(zero_comm_barrier(nullptr), ZERO_ERR_ARGUMENT, "the comm handle is NULL"));
  int somewhere = 0;
  EXPECT_TRUE(ends(zero_comm_barrier(reinterpret_cast<zero_comm*>(&somewhere)), ZERO_ERR_ARGUMENT,
                   "was not created by libzero"));
  EXPECT_TRUE(ends(zero_comm_barrier(reinterpret_cast<zero_comm*>(optim)), ZERO_ERR_ARGUMENT,
                   "of the wrong type"));
  const uintptr_t place_beyond_all = reinterpret_cast<uintptr_t>(comm) | 0xFFFFFF;
  EXPECT_TRUE(ends(zero_comm_barrier(reinterpret_cast<zero_comm*>(place_beyond_all)),
                   ZERO_ERR_ARGUMENT, "belongs to another copy of libzero"));
  zero_comm* closed = nullptr;
  ASSERT_OK(zero_comm_create_solo(&closed, nullptr));
  ASSERT_OK(zero_comm_free(closed));
  EXPECT_TRUE(ends(zero_comm_free(closed), ZERO_ERR_ARGUMENT, "already freed"));
  EXPECT_EQ(zero_comm_rank(closed), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_create(&optim, closed, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_step(nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_OK(zero_free(nullptr));
  EXPECT_OK(zero_comm_free(nullptr));
  EXPECT_OK(zero_arena_free(nullptr));
  EXPECT_EQ(zero_arena_free(&somewhere), ZERO_ERR_ARGUMENT);
}

TEST_F(BadInput, an_arena_given_up_stays_while_parameters_are_in_it) {
  float *params = nullptr, *grads = nullptr;
  const size_t bytes = size_t{64} << 20;  // large, so that freeing it would unmap it at once
  ASSERT_OK(zero_arena_alloc(comm, bytes, ZERO_MEMORY_SHARED, reinterpret_cast<void**>(&params)));
  ASSERT_OK(zero_arena_alloc(comm, bytes, ZERO_MEMORY_PER_RANK, reinterpret_cast<void**>(&grads)));
  zero_param one = param("w", params, &shape);
  one.grad = grads;
  grads[0] = 1;
  ASSERT_OK(add(one));
  EXPECT_OK(zero_arena_free(params));
  EXPECT_OK(zero_arena_free(grads));
  EXPECT_EQ(zero_arena_free(grads), ZERO_ERR_ARGUMENT);
  void* const same = grads;
  ASSERT_OK(zero_bind_params(optim, nullptr, &same, 1));
  grads[0] = 1;
  EXPECT_OK(zero_step(optim, nullptr));
  EXPECT_LT(params[0], 0);
  void* const elsewhere = data;
  void* const grads_elsewhere = grad;
  ASSERT_OK(zero_bind_params(optim, &elsewhere, &grads_elsewhere, 1));
  EXPECT_OK(zero_step(optim, nullptr));
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
  EXPECT_TRUE(refused(options, "zero_options.struct_size is 0"));
  options.struct_size = 12;
  EXPECT_TRUE(refused(options, "call ZERO_INIT on it, then set its fields"));
  std::array<zero_param, 2> params = {param("a", data, &shape), param("b", data + 8, &shape)};
  params[1].struct_size = 0;
  EXPECT_TRUE(ends(zero_register_params(optim, nullptr, params.data(), 2, nullptr),
                   ZERO_ERR_ARGUMENT, "zero_param.struct_size is 0 at index 1 of an array"));
}

TEST_F(BadInput, a_newer_callers_unknown_field_must_be_zero) {
  struct Newer {
    zero_options known;
    int64_t unknown[2];
  } newer;
  ZERO_INIT(newer);
  zero_optim* out = nullptr;
  ASSERT_OK(zero_create(&out, comm, &newer.known));
  zero_free(out);
  newer.unknown[1] = 7;
  EXPECT_TRUE(refused(newer.known, "", ZERO_ERR_UNSUPPORTED));
}

TEST_F(BadInput, options_out_of_range_are_named) {
  const struct {
    std::function<void(zero_options&)> change;
    const char* words;
  } cases[] = {
      {[](zero_options& o) { o.optimizer = 77; }, "optimizer is 77"},
      {[](zero_options& o) { o.partition = -1; }, "partition is -1"},
      {[](zero_options& o) { o.master = 3; }, "master is 3"},
      {[](zero_options& o) { o.wire_dtype = ZERO_FLOAT32; }, "wire_dtype is 1"},
      {[](zero_options& o) { o.share_dtype = ZERO_FLOAT64; }, "share_dtype is 2"},
      {[](zero_options& o) { o.predivide_factor = 3; }, "predivide_factor is 3"},
      {[](zero_options& o) { o.predivide_factor = -2; }, "predivide_factor is -2"},
      {[](zero_options& o) { o.predivide_factor = NAN; }, "predivide_factor"},
      {[](zero_options& o) { o.predivide_factor = 0x1p64; }, "predivide_factor"},
      {[](zero_options& o) { o.predivide_factor = 0x1p-65; }, "predivide_factor"},
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
    auto options = initialized<zero_options>();
    one.change(options);
    EXPECT_TRUE(refused(options, one.words)) << one.words;
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
    auto group = initialized<zero_group_options>();
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
  EXPECT_OK(zero_group_get(optim, 0, "lr", &lr));
  EXPECT_EQ(lr, 1e-3);
}

TEST_F(BadInput, a_setting_is_given_once) {
  const char* const names[] = {"beta1", "lr", "beta1"};
  const double values[] = {0.5, 0.1, 0.5};
  auto options = initialized<zero_options>();
  options.names = names;
  options.values = values;
  options.setting_count = 3;
  EXPECT_TRUE(refused(options, "setting 'beta1' was given twice"));
  options.setting_count = 2;
  zero_optim* out = nullptr;
  EXPECT_OK(zero_create(&out, comm, &options));
  zero_free(out);
}

TEST_F(BadInput, a_dtype_of_zero_is_the_default) {
  zero_param one = param("w", data, &shape);
  one.dtype = 0;
  EXPECT_OK(add(one));
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
  EXPECT_TRUE(ends(add(one), ZERO_ERR_ARGUMENT, "dtype 99 is unknown"));
  one.dtype = ZERO_INT32;
  EXPECT_TRUE(ends(add(one), ZERO_ERR_UNSUPPORTED, "dtype int32 cannot be trained"));
  one = param("w", data, &shape);
  one.grad_dtype = 7;
  EXPECT_TRUE(ends(add(one), ZERO_ERR_ARGUMENT, "grad_dtype 7 is unknown"));
  one = param("w", data + 1, &shape);
  one.dtype = ZERO_FLOAT64;
  EXPECT_TRUE(ends(add(one), ZERO_ERR_ARGUMENT, "not aligned"));
  one = param("w", data, &shape);
  one.flags = 1 << 20;
  EXPECT_EQ(add(one), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_register_params(optim, nullptr, nullptr, 1, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_register_params(optim, nullptr, &one, 0, nullptr), ZERO_ERR_ARGUMENT);
  // The first of the two is valid, but neither is added.
  zero_param two[2] = {param("a", data, &shape), param("a", data + 8, &shape)};
  EXPECT_TRUE(ends(zero_register_params(optim, nullptr, two, 2, nullptr), ZERO_ERR_ARGUMENT,
                   "'a' is registered twice"));
  int64_t index = 0;
  EXPECT_EQ(zero_param_index(optim, "a", &index), ZERO_ERR_ARGUMENT);
  add_one();
  EXPECT_EQ(add(param("w", data + 8, &shape)), ZERO_ERR_ARGUMENT);
}

TEST_F(BadInput, overlapping_memory_is_refused_with_both_names) {
  add_one();
  EXPECT_TRUE(ends(add(param("v", data + 7, &shape)), ZERO_ERR_ARGUMENT, "'v'"));
  EXPECT_TRUE(says("'w'"));
  EXPECT_EQ(add(param("v", data, &shape)), ZERO_ERR_ARGUMENT);
  zero_param v = param("v", data + 8, &shape);
  v.grad = grad + 4;
  EXPECT_TRUE(ends(add(v), ZERO_ERR_ARGUMENT, "gradient of parameter 'w'"));
  v.grad = data;
  EXPECT_EQ(add(v), ZERO_ERR_ARGUMENT);
  v.grad = grad + 8;
  EXPECT_OK(add(v));
  void* both[2] = {data, data + 4};
  EXPECT_EQ(zero_bind_params(optim, both, nullptr, 2), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_bind_params(optim, both, nullptr, 1), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_reduce_grads(optim, both, 2, 0, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_reduce_grads(optim, both, 1, 0, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_OK(zero_step(optim, nullptr));
}

TEST_F(BadInput, a_refused_bind_leaves_the_memory_of_all_parameters_taken) {
  add_one();
  ASSERT_OK(add(param("v", data + 8, &shape)));
  void* const both[2] = {data, data + 4};
  EXPECT_EQ(zero_bind_params(optim, both, nullptr, 2), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(ends(add(param("u", data + 8, &shape)), ZERO_ERR_ARGUMENT, "'v'"));
}

TEST_F(BadInput, calls_in_the_wrong_phase_are_refused) {
  EXPECT_TRUE(ends(zero_step(optim, nullptr), ZERO_ERR_STATE, "no parameters are registered"));
  size_t count = 0;
  EXPECT_EQ(zero_owned_ranges(optim, 0, nullptr, 0, &count), ZERO_ERR_STATE);
  zero_param unbound = param("w", nullptr, &shape);
  ASSERT_OK(add(unbound));
  EXPECT_TRUE(ends(zero_seal(optim), ZERO_ERR_STATE, "'w' has no memory yet"));
  void* address = data;
  ASSERT_OK(zero_bind_params(optim, &address, nullptr, 1));
  EXPECT_TRUE(ends(zero_step(optim, nullptr), ZERO_ERR_STATE, "no rank has a gradient"));
  void* gradient = grad;
  ASSERT_OK(zero_reduce_grads(optim, &gradient, 1, 0, nullptr));
  EXPECT_EQ(zero_reduce_grads(optim, &gradient, 1, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_bind_params(optim, &address, nullptr, 1), ZERO_ERR_STATE);
  float more[8];
  EXPECT_EQ(add(param("more", more, &shape)), ZERO_ERR_STATE);
  EXPECT_EQ(zero_broadcast_params(optim, 0, nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_save(optim, "/tmp/never-written", nullptr), ZERO_ERR_STATE);
  EXPECT_EQ(zero_state_load(optim, "/tmp/never-written", nullptr), ZERO_ERR_STATE);
  auto options = initialized<zero_step_options>();
  options.grads = &gradient;
  options.grad_count = 1;
  EXPECT_EQ(zero_step(optim, &options), ZERO_ERR_STATE);
  EXPECT_OK(zero_drop_grads(optim));
  EXPECT_OK(zero_drop_grads(optim));
  EXPECT_OK(zero_step(optim, &options));
}

TEST_F(BadInput, arguments_of_the_loop_are_checked) {
  add_one();
  int stream = 0;
  EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 77, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_reduce_grads(optim, nullptr, 0, 0, &stream), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_broadcast_params(optim, 1, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_broadcast_params(optim, -2, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, 0, 2, nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, NAN, 2, nullptr, nullptr), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(zero_clip_grad_norm(optim, nullptr, 0, 1, 0, nullptr, nullptr), ZERO_ERR_ARGUMENT);
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
  EXPECT_OK(zero_step(optim, nullptr));
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
  EXPECT_OK(zero_step(optim, nullptr));
}

}  // namespace
}  // namespace zero::test
