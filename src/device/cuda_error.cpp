// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/refusals.h"
#include "device/cuda_context.h"

namespace zero {
namespace {

bool is_one_of(std::initializer_list<cudaError_t> errors, cudaError_t error) {
  return std::ranges::find(errors, error) != errors.end();
}

/// Returns true if every later call of this process on that device fails with the same error.
bool ends_device(cudaError_t error) {
  return is_one_of(
      {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorIllegalAddress,
       cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorHardwareStackError,
       cudaErrorIllegalInstruction, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace,
       cudaErrorInvalidPc, cudaErrorLaunchFailure},
      error);
}

Code code_of(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return ZERO_ERR_MEMORY;
  const bool refused = is_one_of({cudaErrorNotSupported, cudaErrorNotPermitted,
                                  cudaErrorPeerAccessUnsupported, cudaErrorCallRequiresNewerDriver},
                                 error);
  return refused ? ZERO_ERR_UNSUPPORTED : ZERO_ERR_SYSTEM;
}

std::string words(cudaError_t error) {
  return text(cudaGetErrorName(error), ": ", cudaGetErrorString(error));
}

std::string_view advice(cudaError_t error) {
  if (ends_device(error))
    return "; this process can no longer use the device: end it, and load the last checkpoint";
  if (error == cudaErrorNoKernelImageForDevice)
    return "; this libzero was built for other GPUs: add yours to -Dgpu_architectures";
  return "";
}

/// Returns "12.4" for 12040.
std::string version_text(int version) { return text(version / 1000, '.', version % 1000 / 10); }

}  // namespace

Status cuda_status(cudaError_t error, int32_t ordinal, std::string_view doing) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // otherwise the next launch would report it
  return {code_of(error),
          text("CUDA device ", ordinal, ", ", doing, ": ", words(error), advice(error))};
}

Status cuda_unreached(cudaError_t error, int32_t ordinal, std::string_view doing) {
  Status status = cuda_status(error, ordinal, doing);
  if (status.code() != ZERO_ERR_SYSTEM || ends_device(error)) return status;
  return {ZERO_ERR_UNSUPPORTED, std::string(status.text())};
}

Status cuda_unavailable(cudaError_t error) {
  cudaGetLastError();
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  std::string reason;
  if (driver == 0) {
    reason = "no CUDA driver is installed";
  } else if (error == cudaErrorInsufficientDriver) {
    reason = text("the CUDA driver supports CUDA ", version_text(driver),
                  ", but this libzero needs ", version_text(CUDART_VERSION));
  } else if (error == cudaErrorNoDevice) {
    reason = "there is no CUDA device, or CUDA_VISIBLE_DEVICES hides them all";
  } else {
    reason = "CUDA failed to start";
  }
  return unsupported(reason, ": ", words(error));
}

}  // namespace zero
