// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_context.h"

#include "base/text.h"
#include "device/cuda_error.h"

namespace zero {
Status find_in_driver(const char* name, [[maybe_unused]] unsigned version, void** out) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &answer);
#endif
  if (error != cudaSuccess) return cuda_unavailable(error);
  if (found == nullptr || answer != cudaDriverEntryPointSuccess)
    return {ZERO_ERR_UNSUPPORTED, text("the CUDA driver has no ", name)};
  *out = found;
  return {};
}

Result<CudaDriver> CudaDriver::find() {
  CudaDriver driver;
  ZERO_TRY(find_in_driver("cuCtxPushCurrent", 4000, driver.push));
  ZERO_TRY(find_in_driver("cuCtxPopCurrent", 4000, driver.pop));
  ZERO_TRY(find_in_driver("cuDeviceGet", 2000, driver.device));
  ZERO_TRY(find_in_driver("cuDevicePrimaryCtxRetain", 7000, driver.retain));
  ZERO_TRY(find_in_driver("cuMemGetAddressRange", 3020, driver.address_range));
  ZERO_TRY(find_in_driver("cuStreamGetCtx", 9020, driver.stream_context));
  return driver;
}

Result<CudaContext> CudaContext::open(int32_t ordinal) {
  CudaContext context{ordinal, ZERO_TRY(CudaDriver::find())};
  CUdevice device = 0;
  ZERO_TRY(cuda_status(as_runtime_error(context.driver.device(&device, ordinal)), ordinal,
                       "looking for it"));
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
