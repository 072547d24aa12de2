// SPDX-License-Identifier: Apache-2.0
// Replaces cuda.cpp in builds without CUDA.
#include "base/refusals.h"
#include "device/device.h"

namespace zero {

Result<std::shared_ptr<Device>> open_cuda(int32_t) {
  return unsupported("this libzero was built without CUDA: build it with nvcc and -Dcuda=enabled");
}

Result<std::shared_ptr<Device>> open_cuda_of(int32_t local_rank) { return open_cuda(local_rank); }

std::string cuda_info() { return "not built in"; }

}  // namespace zero
