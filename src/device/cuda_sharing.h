// SPDX-License-Identifier: Apache-2.0
// Device memory that other processes map, and words of host memory for which streams wait. This
// uses driver functions, because the runtime has no equivalents.
#pragma once

#include <span>
#include <string_view>

#include "base/os.h"
#include "device/cuda_context.h"
#include "device/device.h"

namespace zero {

/// The functions for one device, whose context must be current in every call.
class CudaSharing : public DriverCalls {
 public:
  explicit CudaSharing(int32_t ordinal) : ordinal_(ordinal) {}

  Result<Fd> create(size_t bytes, std::string_view what) const;
  Result<void*> map(int fd, size_t bytes, std::string_view what) const;
  /// Allocates and maps memory of a shareable type without a descriptor. Other hosts can access it
  /// too if the machines have suitable links.
  Result<void*> allocate(size_t bytes, std::string_view what) const;
  void unmap(void* memory) const;
  /// Fails with ZERO_ERR_UNSUPPORTED if the driver or the device does not support this.
  Status words(cudaStream_t stream, std::span<const WordStep> steps, std::string_view doing) const;

 private:
  Status status(CUresult result, std::string_view doing) const;
  /// Returns the status of calls that make memory accessible, possibly of another device.
  Status reached(CUresult result, std::string_view doing) const;
  bool can(CUdevice_attribute what) const;
  CUmemAllocationProp properties() const;
  Result<size_t> rounded(size_t bytes, const CUmemAllocationProp& wanted) const;
  Result<void*> place(CUmemGenericAllocationHandle memory, size_t size,
                      std::string_view doing) const;

  const int32_t ordinal_;
  decltype(&cuDeviceGetAttribute) attribute_ = find("cuDeviceGetAttribute", 2000);
  decltype(&cuMemGetAllocationGranularity) granularity_ =
      find("cuMemGetAllocationGranularity", 10020);
  decltype(&cuMemCreate) create_ = find("cuMemCreate", 10020);
  decltype(&cuMemRelease) release_ = find("cuMemRelease", 10020);
  decltype(&cuMemExportToShareableHandle) export_ = find("cuMemExportToShareableHandle", 10020);
  decltype(&cuMemImportFromShareableHandle) import_ = find("cuMemImportFromShareableHandle", 10020);
  decltype(&cuMemAddressReserve) reserve_ = find("cuMemAddressReserve", 10020);
  decltype(&cuMemAddressFree) free_ = find("cuMemAddressFree", 10020);
  decltype(&cuMemMap) map_ = find("cuMemMap", 10020);
  decltype(&cuMemUnmap) unmap_ = find("cuMemUnmap", 10020);
  decltype(&cuMemSetAccess) access_ = find("cuMemSetAccess", 10020);
  struct : DriverCalls {
    decltype(&cuStreamBatchMemOp) batch = find("cuStreamBatchMemOp", 11070);
  } words_;  // everything else works without it
};

/// Give the queued work of every device access to pages of host memory. Ranks that are threads
/// share their pages, which are closed after each rank has closed them.
Status open_host_pages(void* memory, size_t bytes, int32_t ordinal);
cudaError_t close_host_pages(void* memory);

}  // namespace zero
