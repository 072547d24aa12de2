// SPDX-License-Identifier: Apache-2.0
// Models of one-dimensional tensors, whose floats the test owns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zero.h"

namespace zero::test {

struct VectorParam {
  const char* name;
  std::span<float> data, grad;  // of the same size
  int32_t owner = 0;
};

/// Registers the vectors as one group.
inline zero_status register_vectors(zero_optim* optim, const std::vector<VectorParam>& vectors) {
  std::vector<int64_t> sizes;
  for (const VectorParam& one : vectors) sizes.push_back(static_cast<int64_t>(one.data.size()));
  std::vector<zero_param> params(vectors.size());
  for (size_t i = 0; i < params.size(); i++) {
    ZERO_INIT(params[i]);
    params[i].name = vectors[i].name;
    params[i].data = vectors[i].data.data();
    params[i].grad = vectors[i].grad.data();
    params[i].shape = &sizes[i];
    params[i].ndim = 1;
    params[i].owner = vectors[i].owner;
  }
  return zero_register_params(optim, nullptr, params.data(), params.size(), nullptr);
}

}  // namespace zero::test
