// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_pointers.h"

#include "base/text.h"
#include "device/cuda_error.h"

namespace zero {
namespace {

/// How many bytes there are from `start` on, counted up to `wanted`. Memory that an allocator maps
/// piece by piece is a range a piece. `wanted`, where the driver does not tell.
size_t mapped_bytes(const CudaDriver& driver, CUdeviceptr start, size_t wanted) {
  CUdeviceptr base = 0;
  size_t size = 0;
  if (driver.address_range(&base, &size, start) != CUDA_SUCCESS) return wanted;
  size_t known = base + size - start;
  while (known < wanted && driver.address_range(&base, &size, start + known) == CUDA_SUCCESS &&
         size > 0) {
    known = base + size - start;
  }
  return known;
}

Status refused(std::string_view what, std::string reason) {
  return {ZERO_ERR_ARGUMENT, text(what, " is ", reason)};
}

}  // namespace

Status check_cuda_pointer(const CudaContext& context, const void* data, size_t bytes,
                          std::string_view what) {
  if (data == nullptr) return refused(what, "NULL");
  cudaPointerAttributes attributes{};
  ZERO_TRY(cuda_status(cudaPointerGetAttributes(&attributes, data), context.ordinal,
                       text("looking at ", what)));
  switch (attributes.type) {
    case cudaMemoryTypeManaged:
      return {};
    case cudaMemoryTypeHost:
      if (attributes.devicePointer == data) return {};
      return refused(what, "pinned memory of the host that has another address on the device");
    case cudaMemoryTypeDevice:
      break;
    default:
      return refused(what, text("memory of the host, not of CUDA device ", context.ordinal,
                                ": allocate it there"));
  }
  if (attributes.device != context.ordinal) {
    return refused(what, text("memory of CUDA device ", attributes.device, ", not of ",
                              context.ordinal, ", where the comm is"));
  }
  const auto start = reinterpret_cast<CUdeviceptr>(data);
  const size_t room = mapped_bytes(context.driver, start, bytes);
  if (room >= bytes) return {};
  return {ZERO_ERR_ARGUMENT,
          text(what, " has ", bytes, " bytes, but its memory ends after ", room)};
}

}  // namespace zero
