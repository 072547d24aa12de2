// SPDX-License-Identifier: Apache-2.0
// The launches of kernels/launches.h as kernels of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "kernels/launches.h"

namespace zero {

// Between what nvcc compiles and the rest only plain types pass, because the two may be compiled
// with different C++ libraries.

/// For each kernel, how many blocks of it a device holds at once.
struct CudaKernels {
  struct Kernel {
    const void* function;
    uint32_t blocks;
  };
  static constexpr int kMost = 64;
  Kernel all[kMost];
  int count = 0;
};

/// Loads all kernels on the current device. A launch that had to load one could wait for work that
/// waits for it. Returns a cudaError_t.
int load_on_cuda(int multiprocessors, CudaKernels* kernels);

/// Does launch_on_cuda() for the alternative `index` of Launch.
int launch_record_on_cuda(void* stream, size_t index, const void* record,
                          const CudaKernels& kernels);

/// Queues a launch on a stream of the current device; `kernels` must be of that device. Neither
/// allocates nor waits, and may be captured. Returns a cudaError_t: cudaErrorNotSupported if no
/// launch updates by the rule.
inline int launch_on_cuda(void* stream, const Launch& launch, const CudaKernels& kernels) {
  const auto address = [](const auto& record) -> const void* { return &record; };
  return launch_record_on_cuda(stream, launch.index(), std::visit(address, launch), kernels);
}

}  // namespace zero
