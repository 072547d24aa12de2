// SPDX-License-Identifier: Apache-2.0
// A small model of many dtypes on one rank, which a rule of the caller's own updates.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "own_rules.h"
#include "stored.h"
#include "support/comms.h"
#include "support/expect.h"
#include "zero.h"

namespace zero::test {

class OwnModel {
 public:
  struct Choices {
    int32_t partition = ZERO_PARTITION_EVEN;
    int64_t bucket_bytes = 8192;
    int32_t master = ZERO_MASTER_FLOAT32;
    bool overlap_gather = false;
  };

  OwnModel(zero_comm* comm, const OwnRule& rule, const Choices& choices)
      : declared_(rule), rank_(zero_comm_rank(comm)), world_(zero_comm_world(comm)) {
    auto options = initialized<zero_options>();
    declared_.put_into(options);
    options.partition = choices.partition;
    options.bucket_bytes = choices.bucket_bytes;
    options.master = choices.master;
    options.overlap_gather = choices.overlap_gather ? 1 : 0;
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << last();
    zero_param params[kCount];
    const char* const names[] = {"matrix", "wide", "half", "scalar", "late"};
    for (size_t i = 0; i < kCount; i++) {
      ZERO_INIT(params[i]);
      const auto count = static_cast<size_t>(elements(i));
      std::vector<double> values(count);
      for (size_t k = 0; k < count; k++) values[k] = std::sin(static_cast<double>(k * 7 + i));
      data_[i].resize(count);
      grads_[i].resize(count);
      const std::vector<std::byte> stored = encode(kDtypes[i], values);
      std::memcpy(data_[i].data(), stored.data(), stored.size());
      params[i].name = names[i];
      params[i].data = data_[i].data();
      params[i].grad = grads_[i].data();
      params[i].shape = kShapes[i].data();
      params[i].ndim = static_cast<int32_t>(kShapes[i].size());
      params[i].dtype = kDtypes[i];
      params[i].owner = static_cast<int32_t>(i) % world_;
    }
    params[1].flags = ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY;
    params[1].lr_scale = 0.5;
    params[1].weight_decay = 0.25;
    EXPECT_EQ(zero_register_params(optim_, nullptr, params, kCount, nullptr), ZERO_OK) << last();
  }
  ~OwnModel() { zero_free(optim_); }

  zero_optim* optim() const { return optim_; }

  /// With the same gradients on every rank; "late" has none before the third step.
  zero_status step() {
    EXPECT_EQ(zero_param_wait(optim_, ZERO_ALL_PARAMS, nullptr), ZERO_OK) << last();
    std::vector<void*> pointers;
    for (size_t i = 0; i < kCount; i++) {
      std::vector<double> values(grads_[i].size());
      for (size_t k = 0; k < values.size(); k++)
        values[k] = std::cos(static_cast<double>(k * 3 + i * 11 + static_cast<size_t>(steps_)));
      const std::vector<std::byte> stored = encode(kDtypes[i], values);
      std::memcpy(grads_[i].data(), stored.data(), stored.size());
      pointers.push_back(i == 4 && steps_ < 2 ? nullptr : grads_[i].data());
    }
    steps_++;
    auto options = initialized<zero_step_options>();
    options.grads = pointers.data();
    options.grad_count = kCount;
    options.reduce_flags = ZERO_REDUCE_NONE;
    return zero_step(optim_, &options);
  }
  void go_on_from(int step) { steps_ = step; }

  /// Every parameter, its master and its state, whole, a line of hashes for each.
  std::string state() {
    std::string out;
    for (int64_t i = 0; i < static_cast<int64_t>(kCount); i++) {
      const char* names[16];
      size_t count = 0;
      EXPECT_EQ(zero_state_info(optim_, i, nullptr, names, 16, &count), ZERO_OK) << last();
      out += gathered(i, nullptr);
      for (size_t n = 0; n < count; n++) out += gathered(i, names[n]);
      double step = -1;
      EXPECT_EQ(zero_state_get(optim_, i, "step", 0, 1, &step), ZERO_OK) << last();
      out += " step " + std::to_string(step) + "\n";
    }
    return out;
  }

  static constexpr size_t kCount = 5;
  static constexpr int32_t kDtypes[kCount] = {ZERO_FLOAT32, ZERO_FLOAT64, ZERO_BFLOAT16,
                                              ZERO_FLOAT32, ZERO_FLOAT16};
  static inline const std::vector<int64_t> kShapes[kCount] = {
      {33, 100}, {1500}, {2, 3, 500}, {}, {77}};
  static int64_t elements(size_t param) {
    int64_t count = 1;
    for (const int64_t size : kShapes[param]) count *= size;
    return count;
  }

 private:
  std::string gathered(int64_t param, const char* name) {
    const auto count = static_cast<size_t>(elements(static_cast<size_t>(param)));
    std::vector<double> values(count);  // room for either type
    EXPECT_EQ(zero_state_gather(optim_, param, name, ZERO_ALL_RANKS, values.data(), values.size()),
              ZERO_OK)
        << last();
    const size_t bytes = count * (kDtypes[param] == ZERO_FLOAT64 ? 8 : 4);
    const auto* const memory = reinterpret_cast<const char*>(values.data());
    const size_t hash = std::hash<std::string_view>()({memory, bytes});
    return std::string(name == nullptr ? "values" : name) + " " + std::to_string(hash) + ", ";
  }

  Declared declared_;
  const int32_t rank_, world_;
  zero_optim* optim_ = nullptr;
  std::vector<double> data_[kCount], grads_[kCount];  // aligned for any type
  int steps_ = 0;
};

}  // namespace zero::test
