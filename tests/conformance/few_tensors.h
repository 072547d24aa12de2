// SPDX-License-Identifier: Apache-2.0
// One rank that trains a few fp32 tensors with SGD through the public header, for runs that are
// easy to compute manually.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/optim.h"
#include "zero.h"

namespace zero::test {

struct Choices {
  int32_t partition = ZERO_PARTITION_EVEN;
  double lr = 0.1;
  double momentum = 0;
  double max_grad_norm = 0;
  double norm_type = 2;
  int32_t share_dtype = 0;
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t optimizer = ZERO_OPTIMIZER_SGD;
};

struct Tensor {
  std::string name;
  std::vector<float> data;
  int32_t owner = 0;
  std::vector<float> grad = {};
  bool has_grad = true;
  int64_t size = 0;
};

/// One rank that trains a few tensors with SGD. Calls that return no status must succeed.
class Rank : public Optim {
 public:
  Rank(zero_comm* comm, const Choices& choices)
      : Optim(comm, options_with([&](zero_options& o) {
                o.optimizer = choices.optimizer;
                o.partition = choices.partition;
                o.max_grad_norm = choices.max_grad_norm;
                o.grad_norm_type = choices.norm_type;
                o.share_dtype = choices.share_dtype;
                o.master = choices.master;
              }),
              settings(choices)) {}

  /// Registers `tensors`, which must not move, as one group.
  void add(std::vector<Tensor>& tensors) {
    std::vector<zero_param> params;
    for (Tensor& tensor : tensors) {
      tensor.grad.resize(tensor.data.size());
      tensor.size = static_cast<int64_t>(tensor.data.size());
      params.push_back(parameter(tensor.name.c_str(), tensor.size, tensor.data.data()));
      params.back().owner = tensor.owner;
    }
    Optim::add(params);
  }

  void reduce(const std::vector<Tensor>& tensors, int32_t flags = ZERO_REDUCE_MEAN) {
    std::vector<void*> grads;
    for (const Tensor& tensor : tensors)
      grads.push_back(tensor.has_grad ? const_cast<float*>(tensor.grad.data()) : nullptr);
    EXPECT_OK(reduce_with(grads, flags));
  }
  void step() { EXPECT_OK(Optim::step()); }
  void train(const std::vector<Tensor>& tensors) {
    reduce(tensors);
    step();
  }

  int64_t owned_elements(int32_t rank) const {
    const std::vector<int64_t> triples = owned(rank);
    int64_t elements = 0;
    for (size_t i = 2; i < triples.size(); i += 3) elements += triples[i];
    return elements;
  }

 private:
  static Settings settings(const Choices& choices) {
    if (choices.momentum == 0) return {{"lr", choices.lr}};
    return {{"lr", choices.lr}, {"momentum", choices.momentum}};
  }
};

/// Runs body(rank, its number) on `world` threads.
inline void on_few(CommKind kind, int world, const Choices& choices,
                   const std::function<void(Rank&, int)>& body) {
  on_ranks(kind, world, [&](zero_comm* comm, int number) {
    SCOPED_TRACE("partition " + std::to_string(choices.partition));
    Rank rank(comm, choices);
    body(rank, number);
  });
}

/// Does the same on each kind of host comm.
inline void on_each_few(int world, const Choices& choices,
                        const std::function<void(Rank&, int)>& body) {
  for (const CommKind kind : kCommKinds) on_few(kind, world, choices, body);
}

/// Does the same, and checks that all ranks return the same bits.
inline void on_few_alike(CommKind kind, int world, const Choices& choices,
                         const std::function<std::vector<float>(Rank&, int)>& body) {
  std::vector<std::vector<float>> ends(static_cast<size_t>(world));
  on_few(kind, world, choices,
         [&](Rank& rank, int number) { ends[static_cast<size_t>(number)] = body(rank, number); });
  for (const std::vector<float>& end : ends) {
    ASSERT_EQ(end.size(), ends[0].size());
    EXPECT_TRUE(
        std::ranges::equal(std::as_bytes(std::span(end)), std::as_bytes(std::span(ends[0]))))
        << name_of(kind) << ", world " << world << ", partition " << choices.partition
        << ": ranks end with different bits";
  }
}

}  // namespace zero::test
