// SPDX-License-Identifier: Apache-2.0
// The launches of kernels/launches.h as kernels of CUDA.
#pragma once

#include <cstdint>
#include <map>

#include "kernels/launches.h"

namespace zero {

/// The kernels of a device: how many blocks of each it holds at once.
using CudaKernels = std::map<const void*, uint32_t>;

/// Loads all kernels on the current device, so that no launch has to wait for work that waits for
/// it. Returns a cudaError_t.
int load_on_cuda(int multiprocessors, CudaKernels* kernels);

/// Queues a launch on a stream of the current device, which `kernels` are of. Neither allocates nor
/// waits, and may be captured. Returns a cudaError_t: cudaErrorNotSupported where no launch updates
/// by the rule.
int launch_on_cuda(void* stream, const Launch& launch, const CudaKernels& kernels);

}  // namespace zero
