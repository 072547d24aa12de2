// SPDX-License-Identifier: Apache-2.0
// What a pointer is to CUDA.
#pragma once

#include <cstddef>
#include <string_view>

#include "device/cuda_context.h"

namespace zero {

/// Device::check, with the context current.
Status check_cuda_pointer(const CudaContext& context, const void* data, size_t bytes,
                          std::string_view what);

}  // namespace zero
