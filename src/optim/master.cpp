// SPDX-License-Identifier: Apache-2.0
#include "optim/master.h"

#include <cstring>

#include "optim/options.h"

namespace zero {

DType shared_dtype(DType dtype, const OptimizerOptions& options) {
  return dtype == DType::f32 && options.share_dtype != 0 ? options.share() : dtype;
}

Master master_of(DType dtype, const OptimizerOptions& options) {
  const DType holds = shared_dtype(dtype, options);
  if (size_of(holds) != 2) return Master::param;
  if (options.master == ZERO_MASTER_NONE) return Master::rounded;
  const bool remainder = dtype == DType::bf16 && options.master == ZERO_MASTER_REMAINDER;
  return remainder ? Master::remainder : Master::full;
}

void read_values(DType dtype, float* values, const std::byte* param, size_t count) {
  if (dtype == DType::f32) {
    if (count > 0 && static_cast<void*>(values) != param)
      std::memcpy(values, param, count * sizeof(float));
    return;
  }
  kernels().half(dtype).widen(values, reinterpret_cast<const uint16_t*>(param), count);
}

void write_values(DType dtype, const OptimizerOptions& options, std::byte* param,
                  const float* values, size_t count) {
  const DType holds = shared_dtype(dtype, options);
  if (holds == DType::f32) {
    if (count > 0 && static_cast<const void*>(values) != param)
      std::memcpy(param, values, count * sizeof(float));
  } else if (holds == dtype) {
    kernels().half(dtype).narrow(reinterpret_cast<uint16_t*>(param), values, count);
  } else {
    kernels().half(holds).round(reinterpret_cast<float*>(param), values, count);
  }
}

}  // namespace zero
