// SPDX-License-Identifier: Apache-2.0
// A Device of CUDA, through its runtime, which is linked statically: without a driver on the
// machine everything but open_cuda works.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/text.h"
#include "device/cuda_context.h"
#include "device/cuda_error.h"
#include "device/cuda_launch.h"
#include "device/cuda_pointers.h"
#include "device/cuda_sharing.h"
#include "device/device.h"

namespace zero {
namespace {

cudaStream_t stream_of(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(EventHandle event) { return static_cast<cudaEvent_t>(event); }

/// Whether the GPU of that number is given up, by any of its Devices; far numbers share one.
std::atomic<bool>& given_up_of(int32_t ordinal) {
  static std::array<std::atomic<bool>, 64> all{};
  return all[std::min(static_cast<size_t>(ordinal), all.size() - 1)];
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaContext& context, CudaKernels kernels)
      : Device(given_up_of(context.ordinal)),
        context_(context),
        kernels_(std::move(kernels)),
        sharing_(CudaSharing::open(context)) {}

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
  Status words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) override;
  Result<bool> done(EventHandle event) override;

  Status check(const void* data, size_t bytes, std::string_view what) override;
  Status check_stream(StreamHandle stream) override;
  Result<uint64_t> capturing(StreamHandle stream) override;
  Status run_current(const std::function<Status()>& body) override;

  Result<void*> allocate(size_t bytes, std::string_view what) override;
  Result<void*> allocate_host(size_t bytes, std::string_view what) override;
  Result<Fd> create_shared(size_t bytes, std::string_view what) override;
  Result<void*> map_shared(int fd, size_t bytes, std::string_view what) override;
  Result<void*> allocate_shared(size_t bytes, std::string_view what) override;
  Result<void*> open_host(void* memory, size_t bytes) override;
  Result<void*> make_stream() override;
  Result<void*> make_event() override;

  // An error here is one that work before it left behind; the next question of done() has it too.
  void release(void* memory) noexcept override {
    give_back([&] { return cudaFree(memory); });
  }
  void release_host(void* memory) noexcept override {
    give_back([&] { return cudaFreeHost(memory); });
  }
  void unmap_shared(void* memory) noexcept override {
    const OnDevice on(context_);
    if (on.entered().ok()) (*sharing_).unmap(memory);
  }
  void close_host(void* memory) noexcept override {
    const OnDevice on(context_);
    if (on.entered().ok()) close_host_pages(memory);
  }
  void free_stream(void* stream) noexcept override {
    give_back([&] { return cudaStreamDestroy(stream_of(stream)); });
  }
  void free_event(void* event) noexcept override {
    give_back([&] { return cudaEventDestroy(event_of(event)); });
  }

 private:
  /// Calls CUDA with this device as the current one.
  template <class Body>
  Status here(std::string_view doing, const Body& body) {
    const OnDevice on(context_);
    ZERO_TRY(on.entered());
    return cuda_status(body(), ordinal(), doing);
  }
  template <class Body>
  void give_back(const Body& body) noexcept {
    const OnDevice on(context_);
    if (on.entered().ok() && body() != cudaSuccess) cudaGetLastError();
  }
  Result<void*> allocated(size_t bytes, std::string_view what, const char* where,
                          cudaError_t (*allocate)(void** out, size_t bytes));

  const CudaContext context_;
  /// body(calls) with this device as the current one, where the driver has them.
  template <class Body>
  auto share(const Body& body) -> decltype(body(std::declval<const CudaSharing&>())) {
    if (!sharing_.ok()) return sharing_.failure();
    const OnDevice on(context_);
    ZERO_TRY(on.entered());
    return body(*sharing_);
  }

  const CudaKernels kernels_;
  const Result<CudaSharing> sharing_;
};

Result<bool> CudaDevice::done(EventHandle event) {
  bool done = true;
  ZERO_TRY(here("waiting for what was queued", [&] {
    const cudaError_t answer = cudaEventQuery(event_of(event));
    if (answer != cudaErrorNotReady) return answer;
    done = false;
    cudaGetLastError();
    return cudaSuccess;
  }));
  return done;
}

Status CudaDevice::words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) {
  return share([&](const CudaSharing& calls) -> Status {
    return calls.words(stream_of(stream), steps, rule);
  });
}

Status CudaDevice::check(const void* data, size_t bytes, std::string_view what) {
  if (bytes == 0) return {};
  const OnDevice on(context_);
  ZERO_TRY(on.entered());
  return check_cuda_pointer(context_, data, bytes, what);
}

Status CudaDevice::check_stream(StreamHandle stream) {
  if (stream_of(stream) == cudaStreamPerThread) {
    return {ZERO_ERR_ARGUMENT,
            "cudaStreamPerThread is another stream on each thread: give a stream of your own"};
  }
#if CUDART_VERSION >= 12080
  int owner = ordinal();
  ZERO_TRY(here("looking at a stream", [&] {
    const cudaError_t answer = cudaStreamGetDevice(stream_of(stream), &owner);
    if (answer != cudaErrorCallRequiresNewerDriver) return answer;
    cudaGetLastError();
    return cudaSuccess;
  }));
  if (owner != ordinal()) {
    return {ZERO_ERR_ARGUMENT,
            text("the stream is of CUDA device ", owner, ", the comm is on ", ordinal())};
  }
#endif
  if (stream_of(stream) == nullptr || stream_of(stream) == cudaStreamLegacy) return {};
  CUcontext context = nullptr;
  // Where the driver does not tell, as of a green context's stream, the stream is believed.
  if (context_.driver.stream_context(stream_of(stream), &context) != CUDA_SUCCESS ||
      context == nullptr || context == context_.handle)
    return {};
  return {ZERO_ERR_ARGUMENT,
          text("the stream is of another context than the primary one of CUDA device ", ordinal(),
               ", where the comm is: make it there")};
}

Result<uint64_t> CudaDevice::capturing(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  ZERO_TRY(here("looking for a capture",
                [&] { return cudaStreamGetCaptureInfo(stream_of(stream), &status, &number); }));
  if (status == cudaStreamCaptureStatusNone) return uint64_t{0};
  if (status == cudaStreamCaptureStatusActive) return uint64_t{number};
  return Status(ZERO_ERR_STATE,
                "the capture of the stream has failed already: end it, and capture again");
}

Status CudaDevice::run_current(const std::function<Status()>& body) {
  const OnDevice on(context_);
  ZERO_TRY(on.entered());
  return body();
}

Result<void*> CudaDevice::allocated(size_t bytes, std::string_view what, const char* where,
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

Result<void*> CudaDevice::allocate(size_t bytes, std::string_view what) {
  return allocated(bytes, what, " on CUDA device ",
                   [](void** out, size_t wanted) { return cudaMalloc(out, wanted); });
}

Result<void*> CudaDevice::allocate_host(size_t bytes, std::string_view what) {
  return allocated(
      bytes, what, " on the host, pinned for CUDA device ",
      [](void** out, size_t wanted) { return cudaHostAlloc(out, wanted, cudaHostAllocPortable); });
}

Result<Fd> CudaDevice::create_shared(size_t bytes, std::string_view what) {
  return share([&](const CudaSharing& calls) { return calls.create(bytes, what); });
}

Result<void*> CudaDevice::map_shared(int fd, size_t bytes, std::string_view what) {
  return share([&](const CudaSharing& calls) { return calls.map(fd, bytes, what); });
}

Result<void*> CudaDevice::allocate_shared(size_t bytes, std::string_view what) {
  return share([&](const CudaSharing& calls) { return calls.allocate(bytes, what); });
}

Result<void*> CudaDevice::open_host(void* memory, size_t bytes) {
  const OnDevice on(context_);
  ZERO_TRY(on.entered());
  ZERO_TRY(open_host_pages(memory, bytes, ordinal()));
  return memory;
}

Result<void*> CudaDevice::make_stream() {
  cudaStream_t stream = nullptr;
  ZERO_TRY(here("making a stream", [&] {
    int least = 0, greatest = 0;
    const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error != cudaSuccess) return error;
    return cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  }));
  return static_cast<void*>(stream);
}

Result<void*> CudaDevice::make_event() {
  cudaEvent_t event = nullptr;
  ZERO_TRY(here("making an event",
                [&] { return cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }));
  return static_cast<void*>(event);
}

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
    return Status(ZERO_ERR_ARGUMENT, text("there is no CUDA device ", ordinal,
                                          ": this process sees ", count, ", numbered from 0"));
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
    return Status(ZERO_ERR_ARGUMENT,
                  text("this process sees ", count,
                       " CUDA devices, and no variable of the launcher "
                       "says which of its host's ranks this is: set ZERO_LOCAL_RANK"));
  }
  return open_cuda(count == 1 ? 0 : local_rank);
}

// Asks for the version alone: counting devices would start CUDA, which no child of a fork could use
// then.
std::string cuda_info() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return "no driver";
  return text("driver ", version / 1000, '.', version % 1000 / 10);
}

}  // namespace zero
