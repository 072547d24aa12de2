// SPDX-License-Identifier: Apache-2.0
// The launches of kernels/launches.h as kernels of CUDA.
#pragma once

#include "kernels/launches.h"

namespace zero {

/// Queues a launch on a stream of the current device. Neither allocates nor waits, and may be
/// captured. Returns a cudaError_t: cudaErrorNotSupported where no launch updates by the rule.
int launch_on_cuda(void* stream, const Launch& launch, int multiprocessors);

}  // namespace zero
