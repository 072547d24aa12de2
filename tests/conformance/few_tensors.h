// SPDX-License-Identifier: Apache-2.0
// One rank that trains a few fp32 tensors with SGD through the public header, for runs whose
// numbers can be checked by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/expect.h"
#include "zero.h"

namespace zero::test {

constexpr int32_t kPartitions[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                                   ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL};

struct Choices {
  int32_t partition = ZERO_PARTITION_EVEN;
  double lr = 0.1;
  double momentum = 0;
  double max_grad_norm = 0;
  double norm_type = 2;
  int32_t share_dtype = 0;
  int32_t master = ZERO_MASTER_FLOAT32;
};

struct Tensor {
  std::string name;
  std::vector<float> data;
  int32_t owner = 0;
  std::vector<float> grad = {};
  bool has_grad = true;
  int64_t size = 0;
};

/// One rank that trains a few tensors with SGD. Every call must succeed.
class Rank {
 public:
  Rank(zero_comm* comm, const Choices& choices) : comm_(comm) {
    auto options = initialized<zero_options>();
    options.optimizer = ZERO_OPTIMIZER_SGD;
    options.partition = choices.partition;
    options.max_grad_norm = choices.max_grad_norm;
    options.grad_norm_type = choices.norm_type;
    options.share_dtype = choices.share_dtype;
    options.master = choices.master;
    const char* const names[] = {"lr", "momentum"};
    const double values[] = {choices.lr, choices.momentum};
    options.names = names;
    options.values = values;
    options.setting_count = 2;
    must(zero_create(&optim_, comm, &options), "zero_create");
  }
  ~Rank() {
    zero_free(optim_);
    zero_comm_free(comm_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Register `tensors`, which stay where they are, as one group.
  void add(std::vector<Tensor>& tensors) {
    std::vector<zero_param> params(tensors.size());
    for (size_t i = 0; i < tensors.size(); i++) {
      Tensor& tensor = tensors[i];
      tensor.grad.resize(tensor.data.size());
      tensor.size = static_cast<int64_t>(tensor.data.size());
      ZERO_INIT(params[i]);
      params[i].name = tensor.name.c_str();
      params[i].data = tensor.data.data();
      params[i].shape = &tensor.size;
      params[i].ndim = 1;
      params[i].owner = tensor.owner;
    }
    must(zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr), "register");
  }

  void reduce(const std::vector<Tensor>& tensors, int32_t flags = ZERO_REDUCE_MEAN) {
    std::vector<void*> grads;
    for (const Tensor& tensor : tensors)
      grads.push_back(tensor.has_grad ? const_cast<float*>(tensor.grad.data()) : nullptr);
    must(zero_reduce_grads(optim_, grads.data(), grads.size(), flags, nullptr), "reduce");
  }
  double clip(double max_norm, double p) {
    double norm = -1;
    must(zero_clip_grad_norm(optim_, nullptr, 0, max_norm, p, &norm, nullptr), "clip");
    return norm;
  }
  void step() { must(zero_step(optim_, nullptr), "zero_step"); }
  void save(const std::string& to) { must(zero_state_save(optim_, to.c_str(), nullptr), "save"); }
  void load(const std::string& from) {
    must(zero_state_load(optim_, from.c_str(), nullptr), "load");
  }
  void seal() { must(zero_seal(optim_), "zero_seal"); }

  zero_optim* optim() { return optim_; }
  zero_result result() {
    auto result = initialized<zero_result>();
    must(zero_step_result(optim_, &result), "zero_step_result");
    return result;
  }
  /// Elements that `rank` owns.
  int64_t owned(int32_t rank) {
    size_t count = 0;
    must(zero_owned_ranges(optim_, rank, nullptr, 0, &count), "zero_owned_ranges");
    std::vector<int64_t> ranges(3 * count);
    must(zero_owned_ranges(optim_, rank, ranges.data(), count, &count), "zero_owned_ranges");
    int64_t elements = 0;
    for (size_t i = 0; i < count; i++) elements += ranges[3 * i + 2];
    return elements;
  }

 private:
  static void must(zero_status status, const char* what) {
    EXPECT_EQ(status, ZERO_OK) << what << ": " << zero_last_error();
  }

  zero_comm* comm_;
  zero_optim* optim_ = nullptr;
};

}  // namespace zero::test
