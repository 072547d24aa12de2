// SPDX-License-Identifier: Apache-2.0
// The Device that uses the CUDA runtime. The runtime is linked statically, so everything except
// open_cuda works on a machine without a driver.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/refusals.h"
#include "device/cuda_context.h"
#include "device/cuda_launch.h"
#include "device/cuda_sharing.h"
#include "device/device.h"

namespace zero {
namespace {

cudaStream_t stream_of(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(EventHandle event) { return static_cast<cudaEvent_t>(event); }

/// Returns the flag that records whether any Device has given up the GPU with this number. Numbers
/// of 63 and more share one flag.
std::atomic<bool>& given_up_of(int32_t ordinal) {
  static std::array<std::atomic<bool>, 64> all{};
  return all[std::min(static_cast<size_t>(ordinal), all.size() - 1)];
}

/// Returns how many bytes are mapped from `start` on, but looks no further than `wanted`. An
/// allocator may map memory in many parts, and each part is a range of its own. Returns `wanted` if
/// the driver cannot answer.
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

/// Implements CudaDevice::check. The context must be current.
Status check_pointer(const CudaContext& context, const void* data, size_t bytes,
                     std::string_view what) {
  if (data == nullptr) return bad_argument(what, " is NULL");
  cudaPointerAttributes attributes{};
  ZERO_TRY(cuda_status(cudaPointerGetAttributes(&attributes, data), context.ordinal,
                       text("inspecting ", what)));
  switch (attributes.type) {
    case cudaMemoryTypeManaged:
      return {};
    case cudaMemoryTypeHost:
      if (attributes.devicePointer == data) return {};
      return bad_argument(what, " is pinned host memory with a different address on the device");
    case cudaMemoryTypeDevice:
      break;
    default:
      return bad_argument(what, " is host memory, not memory of CUDA device ", context.ordinal,
                          ": allocate it there");
  }
  if (attributes.device != context.ordinal) {
    return bad_argument(what, " is memory of CUDA device ", attributes.device,
                        ", but the comm is on ", context.ordinal);
  }
  const auto start = reinterpret_cast<CUdeviceptr>(data);
  const size_t room = mapped_bytes(context.driver, start, bytes);
  if (room >= bytes) return {};
  return bad_argument(what, " has ", bytes, " bytes, but its memory ends after ", room);
}

/// The NVTX domain of libzero's ranges, which separates them from the program's ranges. NVTX looks
/// for an attached tool at the first use.
nvtxDomainHandle_t ranges() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("libzero");
  return domain;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaContext& context, CudaKernels kernels)
      : Device(given_up_of(context.ordinal)),
        context_(context),
        kernels_(std::move(kernels)),
        sharing_(context.ordinal) {}

  const char* kind() const override { return "cuda"; }
  int32_t ordinal() const override { return context_.ordinal; }

  Status copy(StreamHandle stream, void* to, const void* from, size_t bytes) override {
    return here(text("copying ", bytes, " bytes"), [&] {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
    });
  }
  Status fill(StreamHandle stream, void* to, int byte, size_t bytes) override {
    return here(text("filling ", bytes, " bytes"),
                [&] { return cudaMemsetAsync(to, byte, bytes, stream_of(stream)); });
  }
  Status launch(StreamHandle stream, const Launch& launch) override {
    return here("launching a kernel",
                [&] { return static_cast<cudaError_t>(launch_on_cuda(stream, launch, kernels_)); });
  }

  Status record(EventHandle event, StreamHandle stream) override {
    return here("recording an event",
                [&] { return cudaEventRecord(event_of(event), stream_of(stream)); });
  }
  Status wait(StreamHandle stream, EventHandle event, const char* rule) override {
    return here(rule, [&] { return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0); });
  }
  Status words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) override {
    return share([&] { return sharing_.words(stream_of(stream), steps, rule); });
  }
  Result<bool> done(EventHandle event) override {
    bool done = true;
    ZERO_TRY(here("waiting for queued work", [&] {
      const cudaError_t answer = cudaEventQuery(event_of(event));
      if (answer != cudaErrorNotReady) return answer;
      done = false;
      cudaGetLastError();
      return cudaSuccess;
    }));
    return done;
  }

  Status check(const void* data, size_t bytes, std::string_view what) override {
    if (bytes == 0) return {};
    return current([&] { return check_pointer(context_, data, bytes, what); });
  }
  Status check_stream(StreamHandle stream) override {
    if (stream_of(stream) == cudaStreamPerThread) {
      return bad_argument(
          "cudaStreamPerThread is a different stream on each thread: pass a stream that you "
          "created");
    }
    // Asking a stream for its device ends a capture. Asking for its context does not.
    if (ZERO_TRY(capturing(stream)) == 0) ZERO_TRY(check_owner(stream));
    if (stream_of(stream) == nullptr || stream_of(stream) == cudaStreamLegacy) return {};
    CUcontext context = nullptr;
    // Some streams, such as those of green contexts, have a context that is not reported. They
    // pass.
    if (context_.driver.stream_context(stream_of(stream), &context) != CUDA_SUCCESS ||
        context == nullptr || context == context_.handle)
      return {};
    return bad_argument("the stream is not in the primary context of CUDA device ", ordinal(),
                        ", where the comm is: create it there");
  }
  Result<uint64_t> number_of(StreamHandle stream) override {
    unsigned long long number = 0;
    ZERO_TRY(
        here("identifying a stream", [&] { return cudaStreamGetId(stream_of(stream), &number); }));
    return uint64_t{number};
  }
  Result<uint64_t> capturing(StreamHandle stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
    ZERO_TRY(here("checking for a capture",
                  [&] { return cudaStreamGetCaptureInfo(stream_of(stream), &status, &number); }));
    if (status == cudaStreamCaptureStatusNone) return uint64_t{0};
    if (status == cudaStreamCaptureStatusActive) return uint64_t{number};
    return wrong_state("the stream's capture has already failed: end it, and capture again");
  }
  Status run_current(const std::function<Status()>& body) override { return current(body); }

  Result<void*> allocate(size_t bytes, std::string_view what) override {
    return allocated(bytes, what, " on CUDA device ",
                     [](void** out, size_t wanted) { return cudaMalloc(out, wanted); });
  }
  Result<void*> allocate_host(size_t bytes, std::string_view what) override {
    return allocated(bytes, what, " on the host, pinned for CUDA device ",
                     [](void** out, size_t wanted) {
                       return cudaHostAlloc(out, wanted, cudaHostAllocPortable);
                     });
  }
  Result<Fd> create_shared(size_t bytes, std::string_view what) override {
    return share([&] { return sharing_.create(bytes, what); });
  }
  Result<void*> map_shared(int fd, size_t bytes, std::string_view what) override {
    return share([&] { return sharing_.map(fd, bytes, what); });
  }
  Result<void*> allocate_shared(size_t bytes, std::string_view what) override {
    return share([&] { return sharing_.allocate(bytes, what); });
  }
  Result<void*> open_host(void* memory, size_t bytes) override {
    ZERO_TRY(current([&] { return open_host_pages(memory, bytes, ordinal()); }));
    return memory;
  }
  Result<void*> make_stream() override {
    cudaStream_t stream = nullptr;
    ZERO_TRY(here("creating a stream", [&] {
      int least = 0, greatest = 0;
      const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
      if (error != cudaSuccess) return error;
      return cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
    }));
    return static_cast<void*>(stream);
  }
  Result<void*> make_event() override {
    cudaEvent_t event = nullptr;
    ZERO_TRY(here("creating an event",
                  [&] { return cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }));
    return static_cast<void*>(event);
  }

  void begin_range(const char* name) noexcept override {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    nvtxDomainRangePushEx(ranges(), &range);
  }
  void end_range() noexcept override { nvtxDomainRangePop(ranges()); }

  // An error here comes from earlier work. The next done() also reports it.
  void release(void* memory) noexcept override {
    give_back([&] { return cudaFree(memory); });
  }
  void release_host(void* memory) noexcept override {
    give_back([&] { return cudaFreeHost(memory); });
  }
  void unmap_shared(void* memory) noexcept override {
    give_back([&] { return sharing_.unmap(memory), cudaSuccess; });
  }
  void close_host(void* memory) noexcept override {
    give_back([&] { return close_host_pages(memory); });
  }
  void free_stream(void* stream) noexcept override {
    give_back([&] { return cudaStreamDestroy(stream_of(stream)); });
  }
  void free_event(void* event) noexcept override {
    give_back([&] { return cudaEventDestroy(event_of(event)); });
  }

 private:
  /// Runs `body` with this device as the current one.
  template <class Body>
  auto current(const Body& body) -> decltype(body()) {
    const OnDevice on(context_);
    ZERO_TRY(on.entered());
    return body();
  }
  /// Runs `body`, which calls CUDA, and returns its error as a status.
  template <class Body>
  Status here(std::string_view doing, const Body& body) {
    return current([&] { return cuda_status(body(), ordinal(), doing); });
  }
  /// Fails if the stream belongs to another device. Passes if the runtime cannot tell.
  Status check_owner([[maybe_unused]] StreamHandle stream) {
#if CUDART_VERSION >= 12080
    int owner = ordinal();
    ZERO_TRY(here("inspecting a stream", [&] {
      const cudaError_t answer = cudaStreamGetDevice(stream_of(stream), &owner);
      if (answer != cudaErrorCallRequiresNewerDriver) return answer;
      cudaGetLastError();
      return cudaSuccess;
    }));
    if (owner != ordinal()) {
      return bad_argument("the stream belongs to CUDA device ", owner, ", but the comm is on ",
                          ordinal());
    }
#endif
    return {};
  }
  template <class Body>
  void give_back(const Body& body) noexcept {
    const OnDevice on(context_);
    if (on.entered().ok() && body() != cudaSuccess) cudaGetLastError();
  }
  /// Runs `body`, which uses sharing_. Fails if the driver lacks the calls.
  template <class Body>
  auto share(const Body& body) -> decltype(body()) {
    ZERO_TRY(sharing_.found());
    return current(body);
  }
  Result<void*> allocated(size_t bytes, std::string_view what, const char* where,
                          cudaError_t (*allocate)(void** out, size_t bytes)) {
    void* memory = nullptr;
    size_t free_bytes = 0;
    const Status status = here(text("allocating ", bytes, " bytes of ", what), [&] {
      const cudaError_t error = allocate(&memory, bytes);
      size_t all_bytes = 0;
      if (error == cudaErrorMemoryAllocation) cudaMemGetInfo(&free_bytes, &all_bytes);
      return error;
    });
    if (status.code() == ZERO_ERR_MEMORY) {
      return Status(ZERO_ERR_MEMORY, text("no memory for ", bytes, " bytes of ", what, where,
                                          ordinal(), ", which has ", free_bytes, " bytes free"));
    }
    ZERO_TRY(status);
    return memory;
  }

  const CudaContext context_;
  const CudaKernels kernels_;
  const CudaSharing sharing_;
};

Result<int32_t> count_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cuda_unavailable(error);
  return int32_t{count};
}

}  // namespace

Result<std::shared_ptr<Device>> open_cuda(int32_t ordinal) {
  const int32_t count = ZERO_TRY(count_devices());
  if (ordinal < 0 || ordinal >= count) {
    return bad_argument("there is no CUDA device ", ordinal, ": this process sees ", count,
                        ", numbered from 0");
  }
  const CudaContext context = ZERO_TRY(CudaContext::open(ordinal));
  int multiprocessors = 0;
  ZERO_TRY(
      cuda_status(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal),
                  ordinal, "counting its multiprocessors"));
  CudaKernels kernels;
  const OnDevice on(context);
  ZERO_TRY(on.entered());
  ZERO_TRY(cuda_status(static_cast<cudaError_t>(load_on_cuda(multiprocessors, &kernels)), ordinal,
                       "loading its kernels"));
  return std::shared_ptr<Device>(std::make_shared<CudaDevice>(context, std::move(kernels)));
}

Result<std::shared_ptr<Device>> open_cuda_of(int32_t local_rank) {
  const int32_t count = ZERO_TRY(count_devices());
  if (count > 1 && local_rank < 0) {
    return bad_argument("this process sees ", count,
                        " CUDA devices, but no variable of the launcher "
                        "gives this rank's number on its host: set ZERO_LOCAL_RANK");
  }
  return open_cuda(count == 1 ? 0 : local_rank);
}

// Only asks for the version. Counting devices would start CUDA, and forked children could not use
// CUDA then.
std::string cuda_info() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return "no driver";
  return text("driver ", version / 1000, '.', version % 1000 / 10);
}

}  // namespace zero
