// SPDX-License-Identifier: Apache-2.0
// Values that are updated, and the parameters that hold what these are rounded to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/kernels.h"

namespace zero {

struct OptimizerOptions;

Master master_of(DType dtype, const OptimizerOptions& options);

/// True if state beside the parameter belongs to it.
constexpr bool is_kept(Master master) {
  return master == Master::full || master == Master::remainder;
}

constexpr size_t master_bytes(Master master) {
  return master == Master::full        ? sizeof(float)
         : master == Master::remainder ? sizeof(uint16_t)
                                       : 0;
}

/// The type of the values that a parameter of `dtype` holds once it was updated: its own, or one of
/// fewer bits.
DType shared_dtype(DType dtype, const OptimizerOptions& options);

/// A parameter that has or is no fp64: its values, and back, rounded to what it holds. Both may be
/// the same memory where the parameter is fp32.
void read_values(DType dtype, float* values, const std::byte* param, size_t count);
void write_values(DType dtype, const OptimizerOptions& options, std::byte* param,
                  const float* values, size_t count);

}  // namespace zero
