// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_context.h"

#include "base/refusals.h"

namespace zero {

DriverCalls::Call DriverCalls::find(const char* name, [[maybe_unused]] unsigned version) {
  void* address = nullptr;
  if (!found_.ok()) return {address};
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &answer);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &answer);
#endif
  if (error != cudaSuccess) {
    found_ = cuda_unavailable(error);
  } else if (address == nullptr || answer != cudaDriverEntryPointSuccess) {
    found_ = unsupported("the CUDA driver has no ", name);
  }
  return {address};
}

Result<CudaContext> CudaContext::open(int32_t ordinal) {
  CudaContext context;
  context.ordinal = ordinal;
  ZERO_TRY(context.driver.found());
  CUdevice device = 0;
  ZERO_TRY(cuda_status(as_runtime_error(context.driver.device(&device, ordinal)), ordinal,
                       "finding it"));
  ZERO_TRY(cuda_status(as_runtime_error(context.driver.retain(&context.handle, device)), ordinal,
                       "opening its context"));
  return context;
}

OnDevice::OnDevice(const CudaContext& context)
    : context_(context), pushed_(as_runtime_error(context.driver.push(context.handle))) {
  if (pushed_ == cudaSuccess) cudaThreadExchangeStreamCaptureMode(&capture_mode_);
}

OnDevice::~OnDevice() {
  if (pushed_ != cudaSuccess) return;
  cudaThreadExchangeStreamCaptureMode(&capture_mode_);
  CUcontext popped = nullptr;
  context_.driver.pop(&popped);
}

Status OnDevice::entered() const {
  return cuda_status(pushed_, context_.ordinal, "making its context current");
}

}  // namespace zero
