// SPDX-License-Identifier: Apache-2.0
// The launches of kernels/launches.h as kernels of CUDA.
#pragma once

#include <cstdint>
#include <map>

#include "kernels/launches.h"

namespace zero {

/// For each kernel, how many blocks of it a device holds at once.
using CudaKernels = std::map<const void*, uint32_t>;

/// Loads all kernels on the current device. A launch that had to load one could wait for work that
/// waits for it. Returns a cudaError_t.
int load_on_cuda(int multiprocessors, CudaKernels* kernels);

/// Queues a launch on a stream of the current device; `kernels` must be of that device. Neither
/// allocates nor waits, and may be captured. Returns a cudaError_t: cudaErrorNotSupported if no
/// launch updates by the rule.
int launch_on_cuda(void* stream, const Launch& launch, const CudaKernels& kernels);

}  // namespace zero
