// SPDX-License-Identifier: Apache-2.0
// Makes a device's context current for one call, and then restores the caller's own.
//
// cudaSetDevice is enough on a thread that has a device. On a thread that has none yet, restoring
// the default creates a context, and takes memory, on a device that the caller never asked for. So
// the driver pushes and pops contexts. Its calls are found through the runtime.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace zero {

// ---- CUDA's errors in libzero's words (cuda_error.cpp)

/// Returns OK, ZERO_ERR_MEMORY, ZERO_ERR_UNSUPPORTED or ZERO_ERR_SYSTEM. The text is "CUDA device
/// 0, copying 16 bytes: ..." with CUDA's name and words, and says if the device cannot be used any
/// more.
Status cuda_status(cudaError_t error, int32_t ordinal, std::string_view doing);

/// Does the same for a call that lets one device reach another's memory. It fails with
/// ZERO_ERR_UNSUPPORTED, unless memory is short or the device has ended.
Status cuda_unreached(cudaError_t error, int32_t ordinal, std::string_view doing);

/// Returns ZERO_ERR_UNSUPPORTED, whose text says why no device can be opened at all.
Status cuda_unavailable(cudaError_t error);

// ---- Calls of the driver

/// Calls of the driver, found through the runtime. A class that inherits this has them as members.
class DriverCalls {
 public:
  /// Returns OK, or the failure of the first call that was not found: ZERO_ERR_UNSUPPORTED if the
  /// driver does not have it.
  const Status& found() const { return found_; }

 protected:
  struct Call {
    void* address;
    template <class Function>
    operator Function() const {
      return reinterpret_cast<Function>(address);
    }
  };
  /// Finds a call. `version`: the first version of CUDA whose driver has the call in the form of
  /// our headers.
  Call find(const char* name, unsigned version);

 private:
  Status found_;
};

/// Converts an error. Driver and runtime give the same name to each number that both have.
inline cudaError_t as_runtime_error(CUresult error) { return static_cast<cudaError_t>(error); }

struct CudaDriver : DriverCalls {
  decltype(&cuCtxPushCurrent) push = find("cuCtxPushCurrent", 4000);
  decltype(&cuCtxPopCurrent) pop = find("cuCtxPopCurrent", 4000);
  decltype(&cuDeviceGet) device = find("cuDeviceGet", 2000);
  decltype(&cuDevicePrimaryCtxRetain) retain = find("cuDevicePrimaryCtxRetain", 7000);
  decltype(&cuMemGetAddressRange) address_range = find("cuMemGetAddressRange", 3020);
  decltype(&cuStreamGetCtx) stream_context = find("cuStreamGetCtx", 9020);
};

// ---- Contexts

/// The primary context of a device: the one that the runtime, and every engine on top of it, uses.
/// It stays until the process ends, as the runtime's does.
struct CudaContext {
  int32_t ordinal = 0;
  CudaDriver driver;
  CUcontext handle = nullptr;

  static Result<CudaContext> open(int32_t ordinal);
};

class OnDevice {
 public:
  explicit OnDevice(const CudaContext& context);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  /// Returns OK if the context is current. If not, nothing else may be called.
  Status entered() const;

 private:
  const CudaContext& context_;
  cudaError_t pushed_;
  // Queries of events and memory must not end a capture on another thread.
  cudaStreamCaptureMode capture_mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace zero
