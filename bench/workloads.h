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

/// GPT-2 124M: 148 tensors, 124,439,808 elements; 98 of the tensors hold 0.1 % of them.
Workload gpt2();
/// GPT-3 175B: 1,156 tensors, of the same kinds.
Workload gpt3();
/// The 12 blocks of GPT-2 alone, which end in no tensor that is larger than the rest together.
Workload blocks();
/// 20,000 tensors of 1 to 4,096 elements, log-uniform.
Workload small();
/// One tensor of as many elements as small().
Workload flat();

}  // namespace bench
