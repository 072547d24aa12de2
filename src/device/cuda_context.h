// SPDX-License-Identifier: Apache-2.0
// Makes a device's context current for one call, and then restores the caller's context.
//
// On a thread that has a device, cudaSetDevice would be enough. On a thread that has none yet,
// restoring the default would create a context, and take memory, on a device that the caller never
// asked for. Therefore this uses the driver's functions for pushing and popping contexts, which it
// finds through the runtime.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace zero {

// ---- Conversion of CUDA errors (cuda_error.cpp)

/// Returns OK, ZERO_ERR_MEMORY, ZERO_ERR_UNSUPPORTED or ZERO_ERR_SYSTEM. The text is "CUDA device
/// 0, copying 16 bytes: ..." with CUDA's name and text. It says if the device is now unusable.
Status cuda_status(cudaError_t error, int32_t ordinal, std::string_view doing);

/// Does the same for a call that lets one device access another's memory. Such a call fails with
/// ZERO_ERR_UNSUPPORTED, unless memory is short or the device has become unusable.
Status cuda_unreached(cudaError_t error, int32_t ordinal, std::string_view doing);

/// Returns ZERO_ERR_UNSUPPORTED with the reason why no device can be opened.
Status cuda_unavailable(cudaError_t error);

// ---- Driver functions

/// Driver functions found through the runtime. Derived classes hold them as members.
class DriverCalls {
 public:
  /// Returns OK, or the failure for the first function that was not found, which is
  /// ZERO_ERR_UNSUPPORTED if the driver does not have it.
  const Status& found() const { return found_; }

 protected:
  struct Call {
    void* address;
    template <class Function>
    operator Function() const {
      return reinterpret_cast<Function>(address);
    }
  };
  /// Finds a function. `version` is the first CUDA version whose driver has the function with the
  /// signature in the headers.
  Call find(const char* name, unsigned version);

 private:
  Status found_;
};

/// Converts an error. Driver and runtime use the same numbers for the errors that both have.
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

/// The primary context of a device, which the runtime and all engines on top of it use. It is never
/// released, as in the runtime.
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

  /// Returns OK if the context is current. Otherwise no CUDA function may be called.
  Status entered() const;

 private:
  const CudaContext& context_;
  cudaError_t pushed_;
  // Queries of events and memory must not end a capture on another thread.
  cudaStreamCaptureMode capture_mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace zero
