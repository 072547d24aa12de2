// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime and driver calls that src/device makes, with two GPUs that are chaos devices. It
// replaces the real ones in a program that links it.
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

/// Resets to a fresh process on a machine with this driver (0: none) and this number of GPUs.
void start(int driver_version = CUDART_VERSION, int devices = 2);
/// Makes the next `times` calls of that function return the error. That includes the driver calls
/// that create shared memory.
void fail(const std::string& function, cudaError_t error, int times = 1);
/// Gives the GPUs this attribute. At the start they have none.
void give(CUdevice_attribute attribute);
/// Returns the properties of the latest request for shared memory.
const CUmemAllocationProp& last_made();
/// Removes the call of that name from the driver.
void lack(const std::string& symbol);
/// Moves this stream to a context of its device that is not the primary one.
void set_apart(const void* stream);
/// Makes every stream report this capture status. The capture has the number 7.
void capture(cudaStreamCaptureStatus status);

/// Makes the context of a device current on this thread. -1 means none.
void make_current(int ordinal);
int current();
/// Returns the error that cudaGetLastError would still return.
cudaError_t left_behind();
/// Returns the number of calls without the context they need, or that a capture forbids this
/// thread; and the contexts that were opened, as bits.
int64_t strays();
unsigned opened();
/// Returns the number of blocks, streams, events, mappings and pages that have not been released.
int64_t living();

// Shared by the files of the fake: the driver's calls for shared memory, the mapping that contains
// an address, the number of mappings left, and the device whose context is current.
cudaError_t wanted(const char* function);  // the result that the test wants from this call
void forget_sharing();
const std::map<std::string, void*>& sharing_calls();
bool range_of(CUdeviceptr address, CUdeviceptr* base, size_t* bytes);
int64_t shared_living();
ChaosDevice& chaos_of_current();

}  // namespace zero::test::fake_cuda
