// SPDX-License-Identifier: Apache-2.0
// A model of one tensor: floats that the test keeps.
#pragma once

#include <cstdint>
#include <span>

#include "zero.h"

namespace zero::test {

/// Registers them as the parameter "w".
inline zero_status register_vector(zero_optim* optim, std::span<float> data,
                                   std::span<float> grad) {
  const auto size = static_cast<int64_t>(data.size());
  zero_param param;
  ZERO_INIT(param);
  param.name = "w";
  param.data = data.data();
  param.grad = grad.data();
  param.shape = &size;
  param.ndim = 1;
  return zero_register_params(optim, nullptr, &param, 1, nullptr);
}

}  // namespace zero::test
