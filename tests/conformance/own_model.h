// SPDX-License-Identifier: Apache-2.0
// A small model with many dtypes on one rank, which a custom rule updates.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "own_rules.h"
#include "stored.h"
#include "support/optim.h"

namespace zero::test {

class OwnModel : private Declared, public Optim {
 public:
  struct Choices {
    int32_t partition = ZERO_PARTITION_EVEN;
    int64_t bucket_bytes = 8192;
    int32_t master = ZERO_MASTER_FLOAT32;
    bool overlap_gather = false;
  };

  OwnModel(zero_comm* comm, const OwnRule& rule, const Choices& choices)
      : Declared(rule), Optim(comm, options(custom(), choices)) {
    const char* const names[] = {"matrix", "wide", "half", "scalar", "late"};
    std::vector<zero_param> params(kCount);
    for (size_t i = 0; i < kCount; i++) {
      const auto count = static_cast<size_t>(elements(i));
      data_[i].resize(count);
      grads_[i].resize(count);
      fill(data_[i], i, [&](size_t k) { return std::sin(static_cast<double>(k * 7 + i)); });
      params[i] = parameter(names[i], kOne, data_[i].data(), grads_[i].data(), kDtypes[i]);
      params[i].shape = kShapes[i].data();
      params[i].ndim = static_cast<int32_t>(kShapes[i].size());
      params[i].owner = static_cast<int32_t>(i) % world();
    }
    params[1].flags = ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY;
    params[1].lr_scale = 0.5;
    params[1].weight_decay = 0.25;
    add(params);
  }
  ~OwnModel() { free(); }

  /// Uses the same gradients on every rank. "late" has none before the third step.
  zero_status step() {
    wait();
    std::vector<void*> pointers;
    for (size_t i = 0; i < kCount; i++) {
      fill(grads_[i], i, [&](size_t k) {
        return std::cos(static_cast<double>(k * 3 + i * 11 + static_cast<size_t>(steps_)));
      });
      pointers.push_back(i == 4 && steps_ < 2 ? nullptr : grads_[i].data());
    }
    steps_++;
    return step_with(pointers, ZERO_REDUCE_NONE);
  }
  void steps(int count) {
    for (int i = 0; i < count; i++) EXPECT_OK(step());
  }
  void go_on_from(int step) { steps_ = step; }

  /// Returns every whole parameter with its master weights and its state, as a line of hashes for
  /// each.
  std::string state() const {
    std::string out;
    for (int64_t i = 0; i < static_cast<int64_t>(kCount); i++) {
      out += hash_of(i, nullptr);
      for (const char* const name : state_names(i)) out += hash_of(i, name);
      out += " step " + std::to_string(scalar(i)) + "\n";
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
  static zero_options options(const zero_custom_optimizer& custom, const Choices& choices) {
    auto options = initialized<zero_options>();
    options.optimizer = ZERO_OPTIMIZER_CUSTOM;
    options.custom = &custom;
    options.partition = choices.partition;
    options.bucket_bytes = choices.bucket_bytes;
    options.master = choices.master;
    options.overlap_gather = choices.overlap_gather ? 1 : 0;
    return options;
  }
  template <class Value>
  static void fill(std::vector<double>& memory, size_t param, const Value& value) {
    std::vector<double> values(memory.size());
    for (size_t k = 0; k < values.size(); k++) values[k] = value(k);
    const std::vector<std::byte> stored = encode(kDtypes[param], values);
    std::memcpy(memory.data(), stored.data(), stored.size());
  }
  std::string hash_of(int64_t param, const char* name) const {
    const auto count = static_cast<size_t>(elements(static_cast<size_t>(param)));
    std::string bytes;
    const auto take = [&](const auto& values) {
      bytes.assign(reinterpret_cast<const char*>(values.data()), count * sizeof values[0]);
    };
    if (kDtypes[param] == ZERO_FLOAT64) {
      take(gathered<double>(param, name, count));
    } else {
      take(gathered(param, name, count));
    }
    return std::string(name == nullptr ? "values" : name) + " " +
           std::to_string(std::hash<std::string>()(bytes)) + ", ";
  }

  std::vector<double> data_[kCount], grads_[kCount];  // aligned for any type
  int steps_ = 0;
};

}  // namespace zero::test
