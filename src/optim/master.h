// SPDX-License-Identifier: Apache-2.0
// Master weights, which are updated, and parameters, which hold them in rounded form.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/kernels.h"

namespace zero {

struct OptimizerOptions;

Master master_of(DType dtype, const OptimizerOptions& options);

/// Returns true if a master weight needs state in addition to the parameter.
constexpr bool is_kept(Master master) {
  return master == Master::full || master == Master::remainder;
}

constexpr size_t master_bytes(Master master) {
  return master == Master::full        ? sizeof(float)
         : master == Master::remainder ? sizeof(uint16_t)
                                       : 0;
}

/// Returns the type to which values of a parameter of type `dtype` are rounded after an update. It
/// is `dtype` or a shorter type.
DType shared_dtype(DType dtype, const OptimizerOptions& options);

/// Read the values of a parameter as fp32, and write them back, rounded to its shared_dtype(). The
/// parameter must not be fp64. If it is fp32, `values` and `param` may be the same memory.
void read_values(DType dtype, float* values, const std::byte* param, size_t count);
void write_values(DType dtype, const OptimizerOptions& options, std::byte* param,
                  const float* values, size_t count);

}  // namespace zero
