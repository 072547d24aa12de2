// SPDX-License-Identifier: Apache-2.0
// Values that are updated, and parameters, which hold them rounded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/kernels.h"

namespace zero {

struct OptimizerOptions;

Master master_of(DType dtype, const OptimizerOptions& options);

/// True if a master needs state beside the parameter.
constexpr bool is_kept(Master master) {
  return master == Master::full || master == Master::remainder;
}

constexpr size_t master_bytes(Master master) {
  return master == Master::full        ? sizeof(float)
         : master == Master::remainder ? sizeof(uint16_t)
                                       : 0;
}

/// Returns the type of the values that a parameter of `dtype` holds after an update: its own type,
/// or one of fewer bits.
DType shared_dtype(DType dtype, const OptimizerOptions& options);

/// Read a parameter's values as fp32, and write them back, rounded to the type that it holds. The
/// parameter must not be fp64. If it is fp32, both may be the same memory.
void read_values(DType dtype, float* values, const std::byte* param, size_t count);
void write_values(DType dtype, const OptimizerOptions& options, std::byte* param,
                  const float* values, size_t count);

}  // namespace zero
