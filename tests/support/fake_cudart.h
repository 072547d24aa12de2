// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime and driver as far as src/device calls them, with two GPUs that are chaos devices:
// it takes the place of the real one in a program that links it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>

namespace zero::test {
class ChaosDevice;
}

namespace zero::test::fake_cuda {

/// As if freshly started, on a machine with that driver (0: none) and so many GPUs.
void start(int driver_version = CUDART_VERSION, int devices = 2);
/// The next call of that name answers so; `times` of them. The driver's, for memory that is made,
/// too.
void fail(const std::string& function, cudaError_t error, int times = 1);
/// The GPUs have this attribute; none has any at the start.
void give(CUdevice_attribute attribute);
/// How memory that is shared was asked for when it was last made.
const CUmemAllocationProp& last_made();
/// From now on the driver has no call of that name.
void lack(const std::string& symbol);
/// This stream is of another context of its device than the primary one.
void set_apart(const void* stream);
/// From now on every stream says this of its capture, whose number is 7.
void capture(cudaStreamCaptureStatus status);

/// The device whose context this thread has made current itself; -1: none.
void make_current(int ordinal);
int current();
/// An error that cudaGetLastError would still answer with.
cudaError_t left_behind();
/// Calls that need a context and came without one, or that a capture forbids this thread; and the
/// contexts that were opened, as bits.
int64_t strays();
unsigned opened();
/// Blocks, streams, events, mappings and pages that were not given back.
int64_t living();

// Between its own files: what the driver has for memory that is shared, the mapping that an address
// lies in, what is left of both, and the device whose context is current.
cudaError_t wanted(const char* function);  // what the test wants this call to answer
void forget_sharing();
const std::map<std::string, void*>& sharing_calls();
bool range_of(CUdeviceptr address, CUdeviceptr* base, size_t* bytes);
int64_t shared_living();
ChaosDevice& chaos_of_current();

}  // namespace zero::test::fake_cuda
