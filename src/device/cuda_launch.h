// SPDX-License-Identifier: Apache-2.0
// The launches of kernels/launches.h as CUDA kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "kernels/launches.h"

namespace zero {

// Only plain types cross the boundary to code compiled by nvcc, because the two sides may be
// compiled with different C++ libraries.

/// The number of blocks of each kernel that a device holds at once.
struct CudaKernels {
  struct Kernel {
    const void* function;
    uint32_t blocks;
  };
  static constexpr int kMost = 64;
  Kernel all[kMost];
  int count = 0;
};

/// Loads all kernels on the current device. If a launch had to load a kernel, it could wait for
/// work that waits for the launch. Returns a cudaError_t.
int load_on_cuda(int multiprocessors, CudaKernels* kernels);

/// Implements launch_on_cuda() for the alternative `index` of Launch.
int launch_record_on_cuda(void* stream, size_t index, const void* record,
                          const CudaKernels& kernels);

/// Queues a launch on a stream of the current device, to which `kernels` must belong. Does not
/// allocate or wait, and may be captured. Returns a cudaError_t, which is cudaErrorNotSupported if
/// no launch implements the rule.
inline int launch_on_cuda(void* stream, const Launch& launch, const CudaKernels& kernels) {
  const auto address = [](const auto& record) -> const void* { return &record; };
  return launch_record_on_cuda(stream, launch.index(), std::visit(address, launch), kernels);
}

}  // namespace zero
