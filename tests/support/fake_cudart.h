// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime and driver as far as src/device calls them, with two GPUs that are chaos devices:
// it takes the place of the real one in a program that links it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace zero::test::fake_cuda {

/// As if freshly started, on a machine with that driver (0: none) and so many GPUs.
void start(int driver_version = CUDART_VERSION, int devices = 2);
/// The next call of that name answers so; `times` of them.
void fail(const std::string& function, cudaError_t error, int times = 1);
/// From now on streams are captured, or not.
void capture(bool on);

/// The device whose context this thread has made current itself; -1: none.
void make_current(int ordinal);
int current();
/// An error that cudaGetLastError would still answer with.
cudaError_t left_behind();
/// Calls that need a context and came without one, and the contexts that were opened, as bits.
int64_t strays();
unsigned opened();
/// Blocks, streams and events that were not given back.
int64_t living();

}  // namespace zero::test::fake_cuda
