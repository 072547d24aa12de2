// SPDX-License-Identifier: Apache-2.0
#include "support/fake_cudart.h"

#include <cuda.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "device/cuda_launch.h"
#include "support/chaos_device.h"

namespace zero::test::fake_cuda {
namespace {

struct Machine {
  std::shared_ptr<ChaosWorld> world = ChaosWorld::create({.seed = 7});
  std::vector<std::shared_ptr<ChaosDevice>> devices;
  int driver_version = 0;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  std::mutex mutex;
  std::map<std::string, std::pair<cudaError_t, int>> failures;
  std::map<const void*, int> owners;  // of device memory and streams
  std::set<std::string> lacking;      // driver calls
  std::set<const void*> apart;        // streams of a context that is not the primary one
  std::atomic<int64_t> strays{0};
  std::atomic<unsigned> opened{0};
};
std::unique_ptr<Machine> machine;

// Initial-exec TLS, because the loader frees the TLS of a loaded library unseen by thread
// sanitizer.
[[gnu::tls_model("initial-exec")]] thread_local std::vector<int> contexts;  // the last is current
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

/// Runs body(device) on the current device. Other errors become cudaErrorInvalidValue.
template <class Body>
cudaError_t here(const char* function, const Body& body) {
  const cudaError_t error = wanted(function);
  if (error != cudaSuccess) return answer(error);
  if (contexts.empty()) {
    ++machine->strays;
    return answer(cudaErrorDeviceUninitialized);
  }
  // Such a call would invalidate the capture.
  if (machine->capture == cudaStreamCaptureStatusActive &&
      capture_mode != cudaStreamCaptureModeRelaxed)
    ++machine->strays;
  const Status status = body(*machine->devices[static_cast<size_t>(contexts.back())]);
  if (status.code() == ZERO_ERR_MEMORY) return answer(cudaErrorMemoryAllocation);
  return answer(status.ok() ? cudaSuccess : cudaErrorInvalidValue);
}

/// Stores what `make` returns for the current device in `out`, and notes the owner.
template <class Handle, class Make>
cudaError_t make(const char* function, Handle* out, const Make& body) {
  return here(function, [&](ChaosDevice& device) -> Status {
    void* const made = ZERO_TRY(body(device));
    const std::lock_guard lock(machine->mutex);
    machine->owners[made] = device.ordinal();
    *out = static_cast<Handle>(made);
    return {};
  });
}

/// Returns the object to the current device.
cudaError_t give_back(const char* function, void (ChaosDevice::*release)(void*) noexcept,
                      void* what) {
  return here(function, [&](ChaosDevice& device) {
    (device.*release)(what);
    return Status();
  });
}

}  // namespace

cudaError_t wanted(const char* function) {
  const std::lock_guard lock(machine->mutex);
  const auto found = machine->failures.find(function);
  if (found == machine->failures.end() || found->second.second-- <= 0) return cudaSuccess;
  return found->second.first;
}

void start(int driver_version, int devices) {
  machine = std::make_unique<Machine>();
  machine->driver_version = driver_version;
  forget_sharing();
  for (int i = 0; i < devices; ++i) machine->devices.push_back(machine->world->make_device(i));
  contexts.clear();
  last_error = cudaSuccess;
}
void fail(const std::string& function, cudaError_t error, int times) {
  machine->failures[function] = {error, times};
}
void lack(const std::string& symbol) { machine->lacking.insert(symbol); }
void set_apart(const void* stream) { machine->apart.insert(stream); }
void capture(cudaStreamCaptureStatus status) { machine->capture = status; }
void make_current(int ordinal) {
  contexts.clear();
  if (ordinal >= 0) contexts.push_back(ordinal);
}
int current() { return contexts.empty() ? -1 : contexts.back(); }
cudaError_t left_behind() { return last_error; }
int64_t strays() { return machine->strays; }
unsigned opened() { return machine->opened; }
int64_t living() { return machine->world->living() + shared_living(); }
ChaosDevice& chaos_of_current() { return *machine->devices[static_cast<size_t>(current())]; }

namespace {

// ---- The driver. A context is the number of its device, plus one.

CUresult push(CUcontext context) {
  contexts.push_back(static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1);
  return CUDA_SUCCESS;
}
CUresult pop(CUcontext*) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  contexts.pop_back();
  return CUDA_SUCCESS;
}
bool has_device(int ordinal) {
  return ordinal >= 0 && ordinal < static_cast<int>(machine->devices.size());
}
CUresult get_device(CUdevice* out, int ordinal) {
  *out = ordinal;
  return has_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult retain(CUcontext* out, CUdevice device) {
  if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  machine->opened |= 1u << device;
  *out = reinterpret_cast<CUcontext>(static_cast<intptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult stream_context(CUstream stream, CUcontext* out) {
  if (wanted("cuStreamGetCtx") != cudaSuccess) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(machine->mutex);
  const int owner = machine->owners.at(stream);
  *out = reinterpret_cast<CUcontext>(intptr_t{owner} + (machine->apart.count(stream) ? 101 : 1));
  return CUDA_SUCCESS;
}
/// Reports memory in pages of 64 bytes, as if each had been mapped separately.
CUresult address_range(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  constexpr CUdeviceptr kPage = 64;
  if (range_of(address, base, size)) return CUDA_SUCCESS;
  const auto& device = machine->devices[static_cast<size_t>(contexts.back())];
  if (!device->check(reinterpret_cast<const void*>(address), 1, "").ok())
    return CUDA_ERROR_NOT_FOUND;
  *base = address / kPage * kPage;
  *size = kPage;
  while (!device->check(reinterpret_cast<const void*>(*base), *size, "").ok()) --*size;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace zero::test::fake_cuda

namespace zero {

int load_on_cuda(int multiprocessors, CudaKernels* kernels) {
  kernels->all[0] = {nullptr, static_cast<uint32_t>(multiprocessors)};
  return test::fake_cuda::wanted("load_on_cuda");
}

int launch_record_on_cuda(void*, size_t, const void*, const CudaKernels& kernels) {
  return kernels.all[0].blocks == 132 ? cudaErrorNoKernelImageForDevice : cudaErrorInvalidValue;
}

}  // namespace zero

// ---- The runtime.

using namespace zero;
using namespace zero::test;
using namespace zero::test::fake_cuda;

cudaError_t cudaDriverGetVersion(int* out) {
  *out = machine->driver_version;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* out) {
  *out = static_cast<int>(machine->devices.size());
  if (machine->driver_version < CUDART_VERSION) return answer(cudaErrorInsufficientDriver);
  return answer(*out == 0 ? cudaErrorNoDevice : wanted("cudaGetDeviceCount"));
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  if (version == 0 || version > CUDART_VERSION || flags != cudaEnableDefault)
    return answer(cudaErrorInvalidValue);
  const std::map<std::string, void*> known = {
      {"cuCtxPushCurrent", reinterpret_cast<void*>(push)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(pop)},
      {"cuDeviceGet", reinterpret_cast<void*>(get_device)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain)},
      {"cuMemGetAddressRange", reinterpret_cast<void*>(address_range)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(stream_context)}};
  const auto own = known.find(symbol);
  *out = own != known.end() ? own->second : sharing_calls().at(symbol);
  *result = cudaDriverEntryPointSuccess;
  if (machine->lacking.count(symbol) != 0) {
    *out = nullptr;
    *result = cudaDriverEntryPointSymbolNotFound;
  }
  return answer(wanted("cudaGetDriverEntryPointByVersion"));
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOfAName";
}
const char* cudaGetErrorString(cudaError_t) { return "some words"; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  *value = 132;
  if (!has_device(ordinal)) return answer(cudaErrorInvalidDevice);
  return answer(attribute == cudaDevAttrMultiProcessorCount ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  *free_bytes = 12345;
  *all_bytes = 99999;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return make("cudaMalloc", out, [&](ChaosDevice& d) { return d.allocate(bytes, ""); });
}
cudaError_t cudaFree(void* memory) { return give_back("cudaFree", &ChaosDevice::release, memory); }
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  if ((flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined)) != 0)
    return answer(cudaErrorInvalidValue);
  return here("cudaHostAlloc", [&](ChaosDevice& device) -> Status {
    *out = ZERO_TRY(device.allocate_host(bytes, ""));
    return {};
  });
}
cudaError_t cudaFreeHost(void* memory) {
  return give_back("cudaFreeHost", &ChaosDevice::release_host, memory);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  if (flags != cudaStreamNonBlocking || priority != -5) return answer(cudaErrorInvalidValue);
  return make("cudaStreamCreateWithPriority", out, [](ChaosDevice& d) { return d.make_stream(); });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return give_back("cudaStreamDestroy", &ChaosDevice::free_stream, stream);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  if (flags != cudaEventDisableTiming) return answer(cudaErrorInvalidValue);
  return make("cudaEventCreateWithFlags", out, [](ChaosDevice& d) { return d.make_event(); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return give_back("cudaEventDestroy", &ChaosDevice::free_event, event);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind != cudaMemcpyDefault) return answer(cudaErrorInvalidValue);
  return here("cudaMemcpyAsync",
              [&](ChaosDevice& device) { return device.copy(stream, to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream) {
  return here("cudaMemsetAsync",
              [&](ChaosDevice& device) { return device.fill(stream, to, byte, bytes); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return here("cudaEventRecord", [&](ChaosDevice& device) { return device.record(event, stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (flags != cudaEventWaitDefault) return answer(cudaErrorInvalidValue);
  return here("cudaStreamWaitEvent",
              [&](ChaosDevice& device) { return device.wait(stream, event, ""); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  bool done = false;
  const cudaError_t error = here("cudaEventQuery", [&](ChaosDevice& device) -> Status {
    done = ZERO_TRY(device.done(event));
    return {};
  });
  return error != cudaSuccess || done ? error : answer(cudaErrorNotReady);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* data) {
  return here("cudaPointerGetAttributes", [&](ChaosDevice& device) -> Status {
    *out = {};
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (range_of(reinterpret_cast<CUdeviceptr>(data), &base, &bytes)) {
      out->type = cudaMemoryTypeDevice;
      out->device = device.ordinal();
      return {};
    }
    const std::lock_guard lock(machine->mutex);
    const auto above = machine->owners.upper_bound(data);
    const int owner = above == machine->owners.begin() ? -1 : std::prev(above)->second;
    if (owner >= 0 && machine->devices[static_cast<size_t>(owner)]->check(data, 1, "").ok()) {
      out->type = cudaMemoryTypeDevice;
      out->device = owner;
    } else if (device.check(data, 1, "").ok()) {
      out->type = cudaMemoryTypeHost;
      out->devicePointer = const_cast<void*>(data);
    }
    return {};
  });
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* out) {
  // This fails in every capture mode of the thread.
  if (machine->capture == cudaStreamCaptureStatusActive) {
    machine->capture = cudaStreamCaptureStatusInvalidated;
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  return here("cudaStreamGetDevice", [&](ChaosDevice& device) {
    const std::lock_guard lock(machine->mutex);
    *out = stream == nullptr ? device.ordinal() : machine->owners.at(stream);
    return Status();
  });
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* out) {
  return here("cudaStreamGetId", [&](ChaosDevice& device) -> Status {
    *out = ZERO_TRY(device.number_of(stream));
    return Status();
  });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* out,
                                     unsigned long long* number, cudaGraph_t*,
                                     const cudaGraphNode_t**,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData**,
#endif
                                     size_t*) {
  return here("cudaStreamGetCaptureInfo", [&](ChaosDevice&) {
    *out = machine->capture;
    *number = machine->capture == cudaStreamCaptureStatusActive ? 7 : 0;
    return Status();
  });
}
