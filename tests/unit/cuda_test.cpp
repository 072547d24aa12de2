// SPDX-License-Identifier: Apache-2.0
// CUDA's device on a fake runtime: which context is current when, and the texts of errors.
// conformance/device_test.cpp also runs in this program.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExt.h>

#include <string>

#include "base/text.h"
#include "device/device.h"
#include "support/fake_cudart.h"
#include "support/statuses.h"

namespace zero::test {
namespace {

// A tool that receives ranges. NVIDIA's tools are loaded in the same way.
namespace tool {

std::string told;

nvtxDomainHandle_t create(const char* name) {
  told += text("domain ", name, '\n');
  return reinterpret_cast<nvtxDomainHandle_t>(&told);
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  told += domain == reinterpret_cast<nvtxDomainHandle_t>(&told) ? range->message.ascii : "a stray";
  told += '\n';
  return 0;
}
int pop(nvtxDomainHandle_t) {
  told += "end\n";
  return 0;
}

int start(NvtxGetExportTableFunc_t tables) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size) == 0) return 0;
  const auto take = [&](NvtxCallbackIdCore2 which, auto* function) {
    *functions[which] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  take(NVTX_CBID_CORE2_DomainCreateA, create);
  take(NVTX_CBID_CORE2_DomainRangePushEx, push);
  take(NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

}  // namespace tool

using DevicePtr = std::shared_ptr<Device>;

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::start(); }
  static DevicePtr device(int32_t ordinal = 0) { return made(open_cuda(ordinal)); }
  static Status refusal(int32_t ordinal = 0) { return open_cuda(ordinal).failure(); }
};

void expect(const Status& status, Code code, const std::string& text) {
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.text(), text);
}

TEST_F(Cuda, what_a_machine_does_not_have_is_said_in_words) {
  const std::string needed = text(CUDART_VERSION / 1000, '.', CUDART_VERSION % 1000 / 10,
                                  ": cudaErrorOfAName: some words");
  const struct {
    int driver, devices, ordinal;
    Code code;
    std::string says;
  } machines[] = {
      {0, 0, 0, ZERO_ERR_UNSUPPORTED, "no CUDA driver is installed: cudaErrorOfAName: some words"},
      {11040, 2, 0, ZERO_ERR_UNSUPPORTED,
       "the CUDA driver supports CUDA 11.4, but this libzero needs " + needed},
      {CUDART_VERSION, 0, 0, ZERO_ERR_UNSUPPORTED,
       "there is no CUDA device, or CUDA_VISIBLE_DEVICES hides them all: cudaErrorOfAName: some "
       "words"},
      {CUDART_VERSION, 2, 2, ZERO_ERR_ARGUMENT,
       "there is no CUDA device 2: this process sees 2, numbered from 0"},
      {CUDART_VERSION, 2, -1, ZERO_ERR_ARGUMENT,
       "there is no CUDA device -1: this process sees 2, numbered from 0"}};
  for (const auto& [driver, devices, ordinal, code, says] : machines) {
    fake_cuda::start(driver, devices);
    expect(refusal(ordinal), code, says);
    EXPECT_EQ(fake_cuda::left_behind(), cudaSuccess);
    EXPECT_EQ(fake_cuda::opened(), 0u);
  }
}

TEST_F(Cuda, the_version_of_the_driver_is_told) {
  fake_cuda::start(0, 0);
  EXPECT_EQ(cuda_info(), "no driver");
  fake_cuda::start(11040);
  EXPECT_EQ(cuda_info(), "driver 11.4");
}

TEST_F(Cuda, the_device_of_a_local_rank_is_the_only_one_or_the_one_of_that_number) {
  for (const int32_t local_rank : {-1, 0, 5}) {
    fake_cuda::start(CUDART_VERSION, 1);
    EXPECT_EQ(made(open_cuda_of(local_rank))->ordinal(), 0);
  }
  fake_cuda::start();
  EXPECT_EQ(made(open_cuda_of(1))->ordinal(), 1);
  EXPECT_EQ(open_cuda_of(2).failure().text(),
            "there is no CUDA device 2: this process sees 2, numbered from 0");
  expect(open_cuda_of(-1).failure(), ZERO_ERR_ARGUMENT,
         "this process sees 2 CUDA devices, but no variable of the launcher gives this "
         "rank's number on its host: set ZERO_LOCAL_RANK");
  fake_cuda::start(0, 0);
  EXPECT_EQ(open_cuda_of(0).failure().code(), ZERO_ERR_UNSUPPORTED);
}

TEST_F(Cuda, no_other_device_is_ever_opened_and_the_callers_stays_current) {
  for (const int mine : {-1, 0}) {
    fake_cuda::make_current(mine);
    const DevicePtr gpu = device(1);
    EXPECT_EQ(fake_cuda::current(), mine);
    {
      const Stream stream = made(make_stream(gpu));
      const Event event = made(make_event(gpu));
      const DeviceMemory memory = made(DeviceMemory::allocate_zeroed(gpu, 100, "memory"));
      const HostBuffer buffer = made(HostBuffer::allocate(gpu, 100, "buffer"));
      EXPECT_TRUE(gpu->copy(stream.handle(), buffer.data(), memory.data(), 100).ok());
      EXPECT_TRUE(gpu->record(event.handle(), stream.handle()).ok());
      EXPECT_TRUE(gpu->wait(nullptr, event.handle(), "a rule").ok());
      EXPECT_TRUE(gpu->check(memory.data(), 100, "memory").ok());
      EXPECT_FALSE(*gpu->capturing(stream.handle()));
      EXPECT_TRUE(await(*gpu, event.handle(), 30'000, "work").ok());
      EXPECT_EQ(fake_cuda::current(), mine);
    }
    EXPECT_EQ(fake_cuda::current(), mine);
  }
  EXPECT_EQ(fake_cuda::opened(), 2u);
  EXPECT_EQ(fake_cuda::strays(), 0);
  EXPECT_EQ(fake_cuda::living(), 0);
}

TEST_F(Cuda, the_callers_device_stays_current_where_a_call_fails) {
  fake_cuda::make_current(0);
  const DevicePtr gpu = device(1);
  fake_cuda::fail("cudaMalloc", cudaErrorInvalidValue);
  EXPECT_FALSE(DeviceMemory::allocate(gpu, 100, "memory").ok());
  EXPECT_EQ(fake_cuda::current(), 0);
}

TEST_F(Cuda, an_error_names_the_device_and_what_was_done_and_is_not_left_behind) {
  const DevicePtr gpu = device(1);
  fake_cuda::fail("cudaMemsetAsync", cudaErrorInvalidValue);
  expect(gpu->fill(nullptr, nullptr, 0, 16), ZERO_ERR_SYSTEM,
         "CUDA device 1, filling 16 bytes: cudaErrorOfAName: some words");
  EXPECT_EQ(fake_cuda::left_behind(), cudaSuccess);
}

TEST_F(Cuda, work_that_is_not_done_is_no_error_and_leaves_none_behind) {
  const DevicePtr gpu = device();
  const Event event = made(make_event(gpu));
  fake_cuda::fail("cudaEventQuery", cudaErrorNotReady);
  EXPECT_FALSE(*gpu->done(event.handle()));
  EXPECT_EQ(fake_cuda::left_behind(), cudaSuccess);
  EXPECT_TRUE(*gpu->done(event.handle()));
}

TEST_F(Cuda, an_error_that_ends_the_device_says_so) {
  const DevicePtr gpu = device();
  const Event event = made(make_event(gpu));
  fake_cuda::fail("cudaEventQuery", cudaErrorIllegalAddress);
  expect(gpu->done(event.handle()).failure(), ZERO_ERR_SYSTEM,
         "CUDA device 0, waiting for queued work: cudaErrorIllegalAddress: some words; this "
         "process can no longer use the device: end it, and load the last checkpoint");
}

TEST_F(Cuda, a_gpu_that_kernels_were_not_built_for_says_how_to_build_them) {
  const Status status = device()->launch(nullptr, launch::Decide{});
  expect_failure(status, status.code(), "add yours to -Dgpu_architectures");
}

TEST_F(Cuda, memory_that_runs_out_names_what_it_was_for_and_what_is_free) {
  const DevicePtr gpu = device();
  fake_cuda::fail("cudaMalloc", cudaErrorMemoryAllocation);
  expect(
      DeviceMemory::allocate(gpu, 4096, "optimizer state").failure(), ZERO_ERR_MEMORY,
      "no memory for 4096 bytes of optimizer state on CUDA device 0, which has 12345 bytes free");
  fake_cuda::fail("cudaHostAlloc", cudaErrorMemoryAllocation);
  EXPECT_EQ(HostBuffer::allocate(gpu, 64, "tables").failure().code(), ZERO_ERR_MEMORY);
}

TEST_F(Cuda, shared_memory_is_exportable_and_in_reach_of_the_network_where_the_gpu_can) {
  const DevicePtr gpu = device();
  const auto made_with = [&] {
    const SharedBlock block = made(SharedBlock::allocate_zeroed(gpu, 100, "an arena"));
    EXPECT_TRUE(gpu->check(block.data(), 100, "an arena").ok());
    return fake_cuda::last_made();
  };
  constexpr int kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(made_with().requestedHandleTypes, kDescriptor);
  EXPECT_EQ(fake_cuda::last_made().allocFlags.gpuDirectRDMACapable, 0);
  fake_cuda::give(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  EXPECT_EQ(made_with().allocFlags.gpuDirectRDMACapable, 1);
  fake_cuda::give(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  EXPECT_EQ(made_with().requestedHandleTypes, kDescriptor | CU_MEM_HANDLE_TYPE_FABRIC);
  fake_cuda::fail("cuMemCreate", cudaErrorNotPermitted);
  EXPECT_EQ(made_with().requestedHandleTypes, kDescriptor) << "nobody runs the links of that kind";
}

TEST_F(Cuda, shared_memory_that_is_refused_is_an_error_and_leaves_nothing) {
  const DevicePtr gpu = device();
  const int64_t living = fake_cuda::living();
  fake_cuda::fail("cuMemCreate", cudaErrorNotPermitted, 2);
  expect(SharedBlock::allocate_zeroed(gpu, 100, "an arena").failure(), ZERO_ERR_UNSUPPORTED,
         "CUDA device 0, allocating 100 bytes of an arena: cudaErrorOfAName: some words");
  EXPECT_EQ(fake_cuda::living(), living);
}

TEST_F(Cuda, nothing_that_a_capture_of_the_thread_forbids_is_done_within_one) {
  const DevicePtr gpu = device();
  const Stream before = made(make_stream(gpu));
  fake_cuda::capture(cudaStreamCaptureStatusActive);
  {
    const Stream stream = made(make_stream(gpu));
    const Event event = made(make_event(gpu));
    const DeviceMemory memory = made(DeviceMemory::allocate_zeroed(gpu, 100, "tables"));
    const HostBuffer buffer = made(HostBuffer::allocate(gpu, 100, "tables"));
    EXPECT_TRUE(gpu->copy(before.handle(), memory.data(), buffer.data(), 100).ok());
    EXPECT_TRUE(gpu->record(event.handle(), before.handle()).ok());
    EXPECT_TRUE(await(*gpu, event.handle(), 30'000, "tables").ok());
    EXPECT_TRUE(gpu->check(memory.data(), 100, "tables").ok());
  }
  EXPECT_TRUE(gpu->check_stream(before.handle()).ok());
  EXPECT_EQ(*gpu->capturing(before.handle()), 7u) << "a question has ended the capture";
  EXPECT_EQ(fake_cuda::strays(), 0);
  fake_cuda::make_current(0);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
  EXPECT_EQ(fake_cuda::strays(), 1) << "a call of the thread's own is one";
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Cuda, a_capture_is_seen_with_its_number_and_one_that_has_failed_is_refused) {
  const DevicePtr gpu = device();
  fake_cuda::capture(cudaStreamCaptureStatusActive);
  EXPECT_EQ(*gpu->capturing(nullptr), 7u);
  fake_cuda::capture(cudaStreamCaptureStatusInvalidated);
  expect(gpu->capturing(nullptr).failure(), ZERO_ERR_STATE,
         "the stream's capture has already failed: end it, and capture again");
}

TEST_F(Cuda, what_a_device_cannot_do_is_told_apart_from_what_has_failed) {
  const DevicePtr gpu = device();
  for (const cudaError_t error : {cudaErrorNotSupported, cudaErrorNotPermitted}) {
    fake_cuda::fail("cudaMemsetAsync", error);
    EXPECT_EQ(gpu->fill(nullptr, nullptr, 0, 16).code(), ZERO_ERR_UNSUPPORTED);
  }
}

TEST_F(Cuda, a_driver_without_words_for_streams_shares_memory_all_the_same) {
  fake_cuda::lack("cuStreamBatchMemOp");
  {
    const DevicePtr gpu = device();
    alignas(4096) static std::byte pages[4096];
    const OpenedHost opened = made(open_host(gpu, pages, sizeof pages));
    const WordStep step{WordStep::write, reinterpret_cast<uint32_t*>(pages), 1};
    expect(gpu->words(nullptr, {&step, 1}, "a rule"), ZERO_ERR_UNSUPPORTED,
           "the CUDA driver has no cuStreamBatchMemOp");
    const Fd fd = made(gpu->create_shared(100, "memory"));
    EXPECT_TRUE(map_shared(gpu, fd.get(), 100, "memory").ok());
  }
  EXPECT_EQ(fake_cuda::living(), 0);
  fake_cuda::lack("cuMemCreate");
  EXPECT_EQ(device()->create_shared(100, "memory").failure().code(), ZERO_ERR_UNSUPPORTED);
}

TEST_F(Cuda, any_number_of_words_goes_to_the_driver_in_parts_that_it_takes) {
  const DevicePtr gpu = device();
  alignas(4096) static uint32_t words[1024];
  const OpenedHost opened = made(open_host(gpu, words, sizeof words));
  const Event done = made(make_event(gpu));
  for (const size_t count : {255, 256, 257, 600}) {
    std::vector<WordStep> steps;
    for (size_t i = 0; i < count; i++)
      steps.push_back({WordStep::write, &words[i], static_cast<uint32_t>(count + i)});
    const Status status = gpu->words(nullptr, steps, "a rule");
    EXPECT_TRUE(status.ok()) << count << ": " << status.text();
    EXPECT_TRUE(gpu->record(done.handle(), nullptr).ok());
    EXPECT_TRUE(await(*gpu, done.handle(), 30'000, "words").ok());
    for (size_t i = 0; i < count; i++) EXPECT_EQ(words[i], count + i);
  }
}

TEST_F(Cuda, kernels_are_loaded_when_a_device_is_opened) {
  fake_cuda::fail("load_on_cuda", cudaErrorNoKernelImageForDevice);
  expect(refusal(), ZERO_ERR_SYSTEM,
         "CUDA device 0, loading its kernels: cudaErrorOfAName: some words; this libzero was built "
         "for other GPUs: add yours to -Dgpu_architectures");
}

TEST_F(Cuda, memory_that_is_not_reached_is_unsupported_whatever_the_driver_calls_it) {
  const DevicePtr gpu = device();
  const Fd fd = made(gpu->create_shared(100, "memory"));
  const auto refusal = [&](cudaError_t error) {
    fake_cuda::fail("cuMemSetAccess", error);
    return map_shared(gpu, fd.get(), 100, "memory").failure().code();
  };
  for (const cudaError_t error :
       {cudaErrorInvalidDevice, cudaErrorInvalidValue, cudaErrorPeerAccessUnsupported})
    EXPECT_EQ(refusal(error), ZERO_ERR_UNSUPPORTED);
  EXPECT_EQ(refusal(cudaErrorMemoryAllocation), ZERO_ERR_MEMORY);
  EXPECT_EQ(refusal(cudaErrorIllegalAddress), ZERO_ERR_SYSTEM);
  EXPECT_EQ(fake_cuda::living(), 0);
}

TEST_F(Cuda, a_driver_that_cannot_tell_a_streams_device_is_believed) {
  const DevicePtr gpu = device();
  fake_cuda::fail("cudaStreamGetDevice", cudaErrorCallRequiresNewerDriver);
  EXPECT_TRUE(gpu->check_stream(nullptr).ok());
  EXPECT_EQ(gpu->check_stream(cudaStreamPerThread).code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(fake_cuda::left_behind(), cudaSuccess);
}

TEST_F(Cuda, a_stream_of_another_context_of_the_device_is_refused) {
  const DevicePtr gpu = device();
  const Stream stream = made(make_stream(gpu));
  EXPECT_TRUE(gpu->check_stream(stream.handle()).ok());
  fake_cuda::set_apart(stream.handle());
  expect(gpu->check_stream(stream.handle()), ZERO_ERR_ARGUMENT,
         "the stream is not in the primary context of CUDA device 0, where the comm is: "
         "create it there");
  fake_cuda::fail("cuStreamGetCtx", cudaErrorNotSupported);
  EXPECT_TRUE(gpu->check_stream(stream.handle()).ok());
}

TEST_F(Cuda, a_gpu_that_is_given_up_is_given_up_by_all_its_devices) {
  fake_cuda::start(CUDART_VERSION, 4);  // stays so: other tests use the first two
  const DevicePtr one = device(2), same = device(2), other = device(3);
  EXPECT_FALSE(one->given_up());
  same->give_up();
  EXPECT_TRUE(one->given_up());
  EXPECT_FALSE(other->given_up());
}

TEST_F(Cuda, ranges_reach_the_tool_that_watches_the_process_in_a_domain_of_their_own) {
  const DevicePtr gpu = device();
  { const DeviceRange outer(gpu.get(), "zero_step"), inner(gpu.get(), "apply"); }
  EXPECT_EQ(tool::told, "domain libzero\nzero_step\napply\nend\nend\n");
}

// Runs before the tests of every device, which need an initialized machine.
class FakeMachine : public ::testing::Environment {
  void SetUp() override {
    fake_cuda::start();
    InitializeInjectionNvtx2_fnptr = tool::start;
  }
};
const auto* const fake_machine = ::testing::AddGlobalTestEnvironment(new FakeMachine);

}  // namespace
}  // namespace zero::test
