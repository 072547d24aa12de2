// SPDX-License-Identifier: Apache-2.0
// A device's context made current for one call, and the caller's own again behind it.
//
// cudaSetDevice would do on a thread that has a device. On one that has none yet, setting the
// default back creates a context, and takes memory, on a device that the caller never asked for; so
// contexts are pushed and popped by the driver, whose calls are found through the runtime.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace zero {

// ---- CUDA's errors in libzero's words (cuda_error.cpp)

/// OK, or ZERO_ERR_MEMORY or ZERO_ERR_SYSTEM: "CUDA device 0, copying 16 bytes: ..." with CUDA's
/// name and words, and whether the device can still be used.
Status cuda_status(cudaError_t error, int32_t ordinal, std::string_view doing);

/// The same of a call by which one device is to reach another's memory: unless there is too little
/// memory, or the device has ended, ZERO_ERR_UNSUPPORTED.
Status cuda_unreached(cudaError_t error, int32_t ordinal, std::string_view doing);

/// Why no device can be opened at all: ZERO_ERR_UNSUPPORTED.
Status cuda_unavailable(cudaError_t error);

// ---- Calls of the driver

/// Calls of the driver, which are found through the runtime: the members of who inherits this.
class DriverCalls {
 public:
  /// OK, or of the first that is not found: ZERO_ERR_UNSUPPORTED where the driver has none.
  const Status& found() const { return found_; }

 protected:
  struct Call {
    void* address;
    template <class Function>
    operator Function() const {
      return reinterpret_cast<Function>(address);
    }
  };
  /// `version`: the first of CUDA whose driver has the call in the form of our headers.
  Call find(const char* name, unsigned version);

 private:
  Status found_;
};

/// Names of both sides are the same for the numbers that both have.
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

  /// Whether the context is current. Nothing else may be called where it is not.
  Status entered() const;

 private:
  const CudaContext& context_;
  cudaError_t pushed_;
  // Questions about events and memory must not end a capture that goes on on another thread.
  cudaStreamCaptureMode capture_mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace zero
