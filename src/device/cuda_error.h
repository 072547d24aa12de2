// SPDX-License-Identifier: Apache-2.0
// CUDA's errors in libzero's words.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/status.h"

namespace zero {

/// OK, or ZERO_ERR_MEMORY or ZERO_ERR_SYSTEM: "CUDA device 0, copying 16 bytes: ..." with CUDA's
/// name and words, and whether the device can still be used.
Status cuda_status(cudaError_t error, int32_t ordinal, std::string_view doing);

/// The same of a call by which one device is to reach another's memory: unless there is too little
/// memory, or the device has ended, ZERO_ERR_UNSUPPORTED.
Status cuda_unreached(cudaError_t error, int32_t ordinal, std::string_view doing);

/// Why no device can be opened at all: ZERO_ERR_UNSUPPORTED.
Status cuda_unavailable(cudaError_t error);

}  // namespace zero
