// SPDX-License-Identifier: Apache-2.0
// One rank's optimizer as a caller of zero.h holds it, and the calls that nearly every test makes.
// Calls that return no status must succeed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/expect.h"
#include "zero.h"

namespace zero::test {

using Settings = std::vector<std::pair<std::string, double>>;

/// Describes a parameter with one dimension. It borrows the name and the size.
inline zero_param parameter(const char* name, const int64_t& size, void* data, void* grad = nullptr,
                            int32_t dtype = 0) {
  auto param = initialized<zero_param>();
  param.name = name;
  param.data = data;
  param.grad = grad;
  param.shape = &size;
  param.ndim = 1;
  param.dtype = dtype;
  return param;
}
zero_param parameter(const char*, int64_t&&, void*, void* = nullptr, int32_t = 0) = delete;
inline constexpr int64_t kOne = 1;  // the size of a single element
inline constexpr int32_t kPartitions[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                                          ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL};

/// Describes a buffer. It borrows the name and the shape.
inline zero_buffer buffer(const char* name, const std::vector<int64_t>& shape, void* data,
                          int32_t dtype) {
  auto buffer = initialized<zero_buffer>();
  buffer.name = name;
  buffer.data = data;
  buffer.shape = shape.data();
  buffer.ndim = static_cast<int32_t>(shape.size());
  buffer.dtype = dtype;
  return buffer;
}
zero_buffer buffer(const char*, std::vector<int64_t>&&, void*, int32_t) = delete;

/// Memory of a comm, freed by the destructor. An optimizer with tensors in it must be freed before.
class Arena {
 public:
  Arena(zero_comm* comm, size_t bytes, int32_t kind = ZERO_MEMORY_PER_RANK) {
    EXPECT_OK(zero_arena_alloc(comm, bytes, kind, &memory_));
  }
  ~Arena() { EXPECT_OK(zero_arena_free(memory_)); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  float* floats() const { return static_cast<float*>(memory_); }

 private:
  void* memory_ = nullptr;
};

class Optim {
 public:
  explicit Optim(zero_comm* comm, zero_options options = initialized<zero_options>(),
                 const Settings& settings = {})
      : comm_(comm) {
    std::vector<const char*> names;
    std::vector<double> values;
    for (const auto& [name, value] : settings) {
      names.push_back(name.c_str());
      values.push_back(value);
    }
    if (!settings.empty()) {
      options.names = names.data();
      options.values = values.data();
      options.setting_count = settings.size();
    }
    EXPECT_OK(zero_create(&optim_, comm, &options));
  }
  Optim(std::shared_ptr<zero_comm> comm, const zero_options& options = initialized<zero_options>(),
        const Settings& settings = {})
      : Optim(comm.get(), options, settings) {
    kept_ = std::move(comm);
  }
  ~Optim() { free(); }
  Optim(const Optim&) = delete;
  Optim& operator=(const Optim&) = delete;

  /// A class that owns the tensors of this optimizer calls this first in its destructor.
  void free() { zero_free(std::exchange(optim_, nullptr)); }

  zero_optim* optim() const { return optim_; }
  zero_comm* comm() const { return comm_; }
  int32_t rank() const { return zero_comm_rank(comm_); }
  int32_t world() const { return zero_comm_world(comm_); }

  /// Adds the parameters as one group.
  void add(std::span<const zero_param> params) {
    EXPECT_OK(zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr));
  }
  void add(const zero_param& param) { add(std::span(&param, 1)); }
  zero_status add_buffer(const zero_buffer& buffer) {
    return zero_register_buffers(optim_, &buffer, 1);
  }
  void seal() { EXPECT_OK(zero_seal(optim_)); }
  void freeze(int64_t param, bool frozen = true) {
    EXPECT_OK(zero_param_set_trainable(optim_, param, !frozen));
  }
  void set(const char* setting, double value, int32_t group = ZERO_ALL_GROUPS) {
    EXPECT_OK(zero_group_set(optim_, group, setting, value));
  }
  double setting(const char* name, int32_t group = ZERO_ALL_GROUPS) const {
    double value = 0;
    EXPECT_OK(zero_group_get(optim_, group, name, &value));
    return value;
  }

  zero_status step(int32_t flags = ZERO_REDUCE_MEAN, void* stream = nullptr) {
    return step_with({}, flags, stream);
  }
  /// Takes a step with these gradients, or with the registered ones if `grads` is empty.
  zero_status step_with(const std::vector<void*>& grads, int32_t flags = ZERO_REDUCE_MEAN,
                        void* stream = nullptr) {
    auto options = initialized<zero_step_options>();
    options.grads = grads.empty() ? nullptr : grads.data();
    options.grad_count = grads.size();
    options.reduce_flags = flags;
    options.stream = stream;
    return zero_step(optim_, &options);
  }
  zero_status begin(int32_t flags = ZERO_REDUCE_MEAN) {
    auto options = initialized<zero_step_options>();
    options.reduce_flags = flags;
    return zero_step_begin(optim_, &options);
  }
  zero_status reduce_with(const std::vector<void*>& grads, int32_t flags = ZERO_REDUCE_MEAN,
                          void* stream = nullptr) {
    return zero_reduce_grads(optim_, grads.empty() ? nullptr : grads.data(), grads.size(), flags,
                             stream);
  }
  zero_status reduce(int32_t flags = ZERO_REDUCE_MEAN, void* stream = nullptr) {
    return reduce_with({}, flags, stream);
  }
  /// Clips the norm of all gradients, and returns it.
  double clip(double max_norm, double p) {
    double norm = -1;
    EXPECT_OK(zero_clip_grad_norm(optim_, nullptr, 0, max_norm, p, &norm, nullptr));
    return norm;
  }
  void wait(int64_t param = ZERO_ALL_PARAMS, void* stream = nullptr) {
    EXPECT_OK(zero_param_wait(optim_, param, stream));
  }
  void broadcast(int32_t root) { EXPECT_OK(zero_broadcast_params(optim_, root, nullptr)); }
  void save(const std::string& to) { EXPECT_OK(zero_state_save(optim_, to.c_str(), nullptr)); }
  void load(const std::string& from) { EXPECT_OK(zero_state_load(optim_, from.c_str(), nullptr)); }

  /// Returns the result of the latest step.
  zero_result result(zero_status expected = ZERO_OK) const {
    auto result = initialized<zero_result>();
    EXPECT_EQ(zero_step_result(optim_, &result), expected) << last();
    return result;
  }
  /// Returns the same for a step that may have failed.
  zero_result found() const {
    auto result = initialized<zero_result>();
    (void)zero_step_result(optim_, &result);
    return result;
  }
  zero_statistics statistics() const {
    auto statistics = initialized<zero_statistics>();
    EXPECT_OK(zero_stats(optim_, &statistics));
    return statistics;
  }
  /// Returns the ranges that a rank owns as triples of parameter, first element and count.
  std::vector<int64_t> owned(int32_t rank) const {
    size_t count = 0;
    EXPECT_OK(zero_owned_ranges(optim_, rank, nullptr, 0, &count));
    std::vector<int64_t> triples(3 * count);
    EXPECT_OK(zero_owned_ranges(optim_, rank, triples.data(), count, &count));
    return triples;
  }
  std::vector<const char*> state_names(int64_t param) const {
    const char* found[16];
    size_t count = 0;
    EXPECT_OK(zero_state_info(optim_, param, nullptr, found, std::size(found), &count));
    return {found, found + count};
  }
  /// Gathers a whole tensor of the state on all ranks. A null name means the parameter itself.
  template <class T = float>
  std::vector<T> gathered(int64_t param, const char* name, size_t count) const {
    std::vector<T> values(count);
    EXPECT_OK(zero_state_gather(optim_, param, name, ZERO_ALL_RANKS, values.data(), count));
    return values;
  }
  double scalar(int64_t param, const char* name = "step") const {
    double value = -1;
    EXPECT_OK(zero_state_get(optim_, param, name, 0, 1, &value));
    return value;
  }
  zero_status set_scalar(int64_t param, const char* name, double value) {
    return zero_state_set(optim_, param, name, 0, 1, &value);
  }

 private:
  zero_comm* const comm_;
  std::shared_ptr<zero_comm> kept_;  // or null
  zero_optim* optim_ = nullptr;
};

}  // namespace zero::test
