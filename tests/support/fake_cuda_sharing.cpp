// SPDX-License-Identifier: Apache-2.0
// The driver's calls for memory that processes share, backed by memfds, and for words that streams
// wait for, and the runtime's calls for pages of host memory.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/chaos_device.h"
#include "support/fake_cudart.h"

namespace zero::test::fake_cuda {
namespace {

constexpr size_t kUnit = size_t{2} << 20;

constexpr unsigned kMostOps = 255;  // cuda.h: "must be less than 256"

struct Range {
  size_t bytes;
  bool mapped = false;
};
std::map<CUdeviceptr, Range> ranges;  // of addresses
std::map<void*, size_t> registered;   // pages of host memory
std::set<CUdevice_attribute> attributes;
CUmemAllocationProp made{};

CUresult attribute(int* out, CUdevice_attribute wanted, CUdevice) {
  *out = static_cast<int>(attributes.count(wanted));
  return CUDA_SUCCESS;
}

bool describes_memory(const CUmemAllocationProp& wanted) {
  return wanted.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         wanted.location.type == CU_MEM_LOCATION_TYPE_DEVICE && wanted.location.id == current();
}

CUresult granularity(size_t* out, const CUmemAllocationProp* wanted,
                     CUmemAllocationGranularity_flags flags) {
  *out = kUnit;
  return describes_memory(*wanted) && flags <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}
/// A handle is the descriptor of a memfd, plus one.
CUresult create(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* wanted,
                unsigned long long flags) {
  if (const cudaError_t failed = fake_cuda::wanted("cuMemCreate"); failed != cudaSuccess)
    return static_cast<CUresult>(failed);
  if (bytes == 0 || bytes % kUnit != 0 || flags != 0 || !describes_memory(*wanted) ||
      (wanted->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  made = *wanted;
  const int fd = memfd_create("fake", MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = static_cast<CUmemGenericAllocationHandle>(fd) + 1;
  return CUDA_SUCCESS;
}
int fd_of(CUmemGenericAllocationHandle handle) { return static_cast<int>(handle) - 1; }
CUresult release(CUmemGenericAllocationHandle handle) {
  return close(fd_of(handle)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult export_handle(void* out, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long flags) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(out) = dup(fd_of(handle));
  return CUDA_SUCCESS;
}
CUresult import_handle(CUmemGenericAllocationHandle* out, void* fd,
                       CUmemAllocationHandleType type) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int copy = dup(static_cast<int>(reinterpret_cast<intptr_t>(fd)));
  if (copy < 0) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<CUmemGenericAllocationHandle>(copy) + 1;
  return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                 unsigned long long flags) {
  if (bytes == 0 || bytes % kUnit != 0 || (alignment & (alignment - 1)) != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  void* const place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *out = reinterpret_cast<CUdeviceptr>(place);
  ranges[*out] = {bytes};
  return CUDA_SUCCESS;
}
/// Returns the range with exactly this address and size, or null.
Range* range_at(CUdeviceptr address, size_t bytes) {
  const auto found = ranges.find(address);
  return found != ranges.end() && found->second.bytes == bytes ? &found->second : nullptr;
}
CUresult free_range(CUdeviceptr address, size_t bytes) {
  const Range* const range = range_at(address, bytes);
  if (range == nullptr || range->mapped) return CUDA_ERROR_INVALID_VALUE;
  ranges.erase(address);
  munmap(reinterpret_cast<void*>(address), bytes);
  return CUDA_SUCCESS;
}
/// Access must be granted separately.
CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  Range* const range = range_at(address, bytes);
  struct stat memory {};
  if (range == nullptr || range->mapped || offset != 0 || flags != 0 ||
      fstat(fd_of(handle), &memory) != 0 || static_cast<size_t>(memory.st_size) < bytes)
    return CUDA_ERROR_INVALID_VALUE;
  void* const at = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                        fd_of(handle), 0);
  if (at == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  range->mapped = true;
  return CUDA_SUCCESS;
}
CUresult access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* wanted, size_t count) {
  if (const cudaError_t error = fake_cuda::wanted("cuMemSetAccess"); error != cudaSuccess)
    return static_cast<CUresult>(error);
  const Range* const range = range_at(address, bytes);
  if (range == nullptr || !range->mapped || count != 1 ||
      wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE || wanted->location.id != current() ||
      wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr address, size_t bytes) {
  Range* const range = range_at(address, bytes);
  if (range == nullptr || !range->mapped) return CUDA_ERROR_INVALID_VALUE;
  range->mapped = false;
  return CUDA_SUCCESS;
}
/// Returns true if a stream can access a word at this address.
bool is_word(CUdeviceptr address) {
  const auto above = registered.upper_bound(reinterpret_cast<void*>(address));
  if (address % sizeof(uint32_t) != 0 || above == registered.begin()) return false;
  const auto& [begin, bytes] = *std::prev(above);
  return address - reinterpret_cast<CUdeviceptr>(begin) < bytes;
}
CUresult words(CUstream stream, unsigned count, CUstreamBatchMemOpParams* all, unsigned flags) {
  if (count == 0 || count > kMostOps || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<WordStep> steps;
  for (unsigned i = 0; i < count; i++) {
    const bool writes = all[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 &&
                        all[i].writeValue.flags == CU_STREAM_WRITE_VALUE_DEFAULT;
    const bool waits = all[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
                       all[i].waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ;
    if (!writes && !waits) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr word = writes ? all[i].writeValue.address : all[i].waitValue.address;
    if (!is_word(word)) return CUDA_ERROR_INVALID_VALUE;
    steps.push_back({writes ? WordStep::write : WordStep::wait, reinterpret_cast<uint32_t*>(word),
                     writes ? all[i].writeValue.value : all[i].waitValue.value});
  }
  return chaos_of_current().words(stream, steps, "").ok() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

void give(CUdevice_attribute attribute) { attributes.insert(attribute); }
const CUmemAllocationProp& last_made() { return made; }
void forget_sharing() {
  attributes.clear();
  made = {};
}
int64_t shared_living() { return static_cast<int64_t>(ranges.size() + registered.size()); }

bool range_of(CUdeviceptr address, CUdeviceptr* base, size_t* bytes) {
  const auto above = ranges.upper_bound(address);
  if (above == ranges.begin()) return false;
  *base = std::prev(above)->first;
  *bytes = std::prev(above)->second.bytes;
  return std::prev(above)->second.mapped && address - *base < *bytes;
}

const std::map<std::string, void*>& sharing_calls() {
  static const std::map<std::string, void*> calls = {
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(attribute)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(granularity)},
      {"cuMemCreate", reinterpret_cast<void*>(create)},
      {"cuMemRelease", reinterpret_cast<void*>(release)},
      {"cuMemExportToShareableHandle", reinterpret_cast<void*>(export_handle)},
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(import_handle)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(reserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(free_range)},
      {"cuMemMap", reinterpret_cast<void*>(map)},
      {"cuMemUnmap", reinterpret_cast<void*>(unmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(access)},
      {"cuStreamBatchMemOp", reinterpret_cast<void*>(words)}};
  return calls;
}

}  // namespace zero::test::fake_cuda

using namespace zero::test::fake_cuda;

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags) {
  // CUDA accepts less than whole pages, but maps whole pages.
  const bool pages = reinterpret_cast<uintptr_t>(memory) % 4096 == 0 && bytes % 4096 == 0;
  if (current() < 0 || !pages || bytes == 0 ||
      flags != (cudaHostRegisterPortable | cudaHostRegisterMapped))
    return cudaErrorInvalidValue;
  const auto behind = registered.upper_bound(static_cast<std::byte*>(memory) + bytes - 1);
  if (behind != registered.begin()) {
    const auto& [begin, length] = *std::prev(behind);
    if (static_cast<std::byte*>(begin) + length > memory)
      return cudaErrorHostMemoryAlreadyRegistered;
  }
  registered[memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  return registered.erase(memory) == 1 ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaHostGetDevicePointer(void** out, void* memory, unsigned flags) {
  *out = memory;
  return registered.count(memory) == 1 && flags == 0 ? cudaSuccess : cudaErrorInvalidValue;
}
