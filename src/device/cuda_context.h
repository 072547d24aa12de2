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

#include "base/status.h"

namespace zero {

/// A call of the driver, which is found through the runtime; ZERO_ERR_UNSUPPORTED where it has
/// none. `version`: the first of CUDA whose driver has it in the form of our headers.
Status find_in_driver(const char* name, unsigned version, void** out);

template <class Function>
Status find_in_driver(const char* name, unsigned version, Function& out) {
  void* found = nullptr;
  ZERO_TRY(find_in_driver(name, version, &found));
  out = reinterpret_cast<Function>(found);
  return {};
}

/// Names of both sides are the same for the numbers that both have.
inline cudaError_t as_runtime_error(CUresult error) { return static_cast<cudaError_t>(error); }

struct CudaDriver {
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuMemGetAddressRange) address_range = nullptr;
  decltype(&cuStreamGetCtx) stream_context = nullptr;

  static Result<CudaDriver> find();
};

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
