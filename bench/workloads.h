// SPDX-License-Identifier: Apache-2.0
// The lists of tensors that the benchmarks train.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count;
};

struct Workload {
  std::string name;
  std::vector<Tensor> tensors = {};
  int64_t elements = 0;

  void add(std::string tensor, std::vector<int64_t> shape);
};

/// GPT-2 124M: 148 tensors with 124,439,808 elements; 98 of the tensors have 0.1 % of them.
Workload gpt2();
/// GPT-3 175B: 1,156 tensors of the same kinds.
Workload gpt3();
/// Only the 12 blocks of GPT-2, so that the last tensor is not larger than all others together.
Workload blocks();
/// 20,000 tensors with 1 to 4,096 elements, log-uniform.
Workload small();
/// One tensor with as many elements as small().
Workload flat();

}  // namespace bench
