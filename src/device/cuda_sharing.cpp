// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_sharing.h"

#include <array>
#include <map>
#include <mutex>

#include "base/checked.h"
#include "base/refusals.h"

namespace zero {
namespace {

constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The open pages with their numbers of users, and the sizes of mappings. They are never destroyed,
/// because other threads may still use them while the process exits.
constinit std::mutex mutex;
constinit std::map<void*, int>* opened = nullptr;
constinit std::map<void*, size_t>* mapped = nullptr;

}  // namespace

Status CudaSharing::status(CUresult result, std::string_view doing) const {
  return cuda_status(as_runtime_error(result), ordinal_, doing);
}

Status CudaSharing::reached(CUresult result, std::string_view doing) const {
  return cuda_unreached(as_runtime_error(result), ordinal_, doing);
}

CUmemAllocationProp CudaSharing::properties() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = kDescriptor;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal_;
  return properties;
}

bool CudaSharing::can(CUdevice_attribute what) const {
  int answer = 0;
  return attribute_(&answer, what, ordinal_) == CUDA_SUCCESS && answer != 0;
}

/// Returns `bytes` rounded up, with the same result in every process and on every device.
Result<size_t> CudaSharing::rounded(size_t bytes, const CUmemAllocationProp& wanted) const {
  size_t unit = 0;
  ZERO_TRY(status(granularity_(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  "getting the granularity of shared memory"));
  const auto padded = checked_add(bytes, unit - 1);
  if (!padded)
    return Status(ZERO_ERR_MEMORY, text("shared memory of ", bytes, " bytes is too large"));
  return *padded / unit * unit;
}

Result<Fd> CudaSharing::create(size_t bytes, std::string_view what) const {
  const CUmemAllocationProp wanted = properties();
  const std::string doing = text("allocating ", bytes, " bytes of ", what);
  CUmemGenericAllocationHandle memory = 0;
  ZERO_TRY(status(create_(&memory, ZERO_TRY(rounded(bytes, wanted)), &wanted, 0), doing));
  Status exported;
  Fd made = Fd::open([&] {
    int fd = -1;
    exported = status(export_(&fd, memory, kDescriptor, 0), doing);
    return fd;
  });
  release_(memory);
  ZERO_TRY(Status(exported));
  (void)os().fcntl(made.get(), F_SETFD, FD_CLOEXEC);  // not every driver sets it
  return made;
}

Result<void*> CudaSharing::map(int fd, size_t bytes, std::string_view what) const {
  const std::string doing = text("mapping ", bytes, " bytes of ", what);
  const size_t size = ZERO_TRY(rounded(bytes, properties()));
  CUmemGenericAllocationHandle memory = 0;
  ZERO_TRY(reached(
      import_(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor), doing));
  return place(memory, size, doing);
}

Result<void*> CudaSharing::allocate(size_t bytes, std::string_view what) const {
  const std::string doing = text("allocating ", bytes, " bytes of ", what);
  CUmemAllocationProp wanted = properties();
  wanted.allocFlags.gpuDirectRDMACapable =
      can(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) ? 1 : 0;
  const size_t size = ZERO_TRY(rounded(bytes, wanted));
  CUmemGenericAllocationHandle memory = 0;
  CUresult made = CUDA_ERROR_NOT_SUPPORTED;
#if CUDA_VERSION >= 12040
  if (can(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
    CUmemAllocationProp both = wanted;
    both.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(kDescriptor | CU_MEM_HANDLE_TYPE_FABRIC);
    made = create_(&memory, size, &both, 0);
  }
#endif
  // A machine may have a fabric that is not configured.
  if (made == CUDA_ERROR_NOT_SUPPORTED || made == CUDA_ERROR_NOT_PERMITTED)
    made = create_(&memory, size, &wanted, 0);
  ZERO_TRY(status(made, doing));
  return place(memory, size, doing);
}

/// Maps `memory` at a new address. Releases the handle, even on failure.
Result<void*> CudaSharing::place(CUmemGenericAllocationHandle memory, size_t size,
                                 std::string_view doing) const {
  CUdeviceptr place = 0;
  Status done = status(reserve_(&place, size, 0, 0, 0), doing);
  if (done.ok()) {
    const CUmemAccessDesc own{properties().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    done = reached(map_(place, size, 0, memory, 0), doing);
    if (done.ok()) {
      done = reached(access_(place, size, &own, 1), doing);
      if (!done.ok()) unmap_(place, size);
    }
    if (!done.ok()) free_(place, size);
  }
  release_(memory);  // the mapping keeps the memory
  ZERO_TRY(done);
  void* const found = reinterpret_cast<void*>(place);
  const std::lock_guard lock(mutex);
  if (mapped == nullptr) mapped = new std::map<void*, size_t>;
  mapped->emplace(found, size);
  return found;
}

void CudaSharing::unmap(void* memory) const {
  const std::lock_guard lock(mutex);
  const auto found = mapped->find(memory);
  const auto place = reinterpret_cast<CUdeviceptr>(memory);
  if (unmap_(place, found->second) == CUDA_SUCCESS) free_(place, found->second);
  mapped->erase(found);
}

Status CudaSharing::words(cudaStream_t stream, std::span<const WordStep> steps,
                          std::string_view doing) const {
  constexpr size_t kMost = 255;  // the driver's limit for one call
  ZERO_TRY(words_.found());
  std::array<CUstreamBatchMemOpParams, kMost> batch;
  for (size_t begin = 0; begin < steps.size(); begin += kMost) {
    const size_t count = std::min(kMost, steps.size() - begin);
    for (size_t i = 0; i < count; i++) {
      const WordStep& step = steps[begin + i];
      CUstreamBatchMemOpParams& to = batch[i] = {};
      const auto word = reinterpret_cast<CUdeviceptr>(step.word);
      if (step.kind == WordStep::write) {
        to.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        to.writeValue.address = word;
        to.writeValue.value = step.value;
        to.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
      } else {
        to.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        to.waitValue.address = word;
        to.waitValue.value = step.value;
        to.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
      }
    }
    ZERO_TRY(status(words_.batch(stream, static_cast<unsigned>(count), batch.data(), 0), doing));
  }
  return {};
}

Status open_host_pages(void* memory, size_t bytes, int32_t ordinal) {
  const std::lock_guard lock(mutex);
  if (opened == nullptr) opened = new std::map<void*, int>;
  const auto [found, first] = opened->try_emplace(memory, 0);
  if (first) {
    const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    Status status = cuda_status(cudaHostRegister(memory, bytes, flags), ordinal,
                                text("registering ", bytes, " bytes of host memory"));
    void* seen = nullptr;  // by queued work; must equal the host's address
    if (status.ok()) {
      status = cuda_status(cudaHostGetDevicePointer(&seen, memory, 0), ordinal,
                           "inspecting host memory");
      if (status.ok() && seen != memory)
        status = unsupported("CUDA device ", ordinal,
                             " sees host memory at different addresses than the host does");
      if (!status.ok()) cudaHostUnregister(memory);
    }
    if (!status.ok()) {
      opened->erase(found);
      return status;
    }
  }
  found->second++;
  return {};
}

cudaError_t close_host_pages(void* memory) {
  const std::lock_guard lock(mutex);
  const auto found = opened->find(memory);
  if (--found->second > 0) return cudaSuccess;
  opened->erase(found);
  return cudaHostUnregister(memory);
}

}  // namespace zero
