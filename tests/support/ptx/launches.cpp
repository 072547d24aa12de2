// SPDX-License-Identifier: Apache-2.0
// Implements emulated_launches.h with the PTX that nvcc generates. The library's launches call the
// runtime, and --wrap redirects the calls below to this file, which runs the PTX of the kernels.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <map>
#include <string>

#include "base/text.h"
#include "device/cuda_launch.h"
#include "support/emulated_launches.h"
#include "support/ptx/machine.h"
#include "support/ptx/reach.h"

namespace zero::test {
namespace {

constexpr int kMultiprocessors = 2, kBlocks = 3;  // blocks per multiprocessor

/// Removes the part of a name that differs between compilations of an unnamed namespace.
std::string plain(std::string_view name) {
  const std::string_view mark = "_GLOBAL__N__";
  std::string all(name);
  for (size_t at = all.find(mark); at != std::string::npos; at = all.find(mark, at + 1)) {
    // The length before it includes the file name and two hashes.
    size_t digits = at - 1;
    while (digits > 0 && std::isdigit(all[digits - 1])) digits--;
    const size_t length = std::stoul(all.substr(digits, at - digits));
    all.replace(at + mark.size(), length - mark.size(), "");
  }
  return all;
}

/// Kernels by the address that the host uses for them.
std::map<const void*, std::string>& registered() {
  static std::map<const void*, std::string> all;
  return all;
}

const ptx::Kernel& kernel_of(const void* function) {
  const auto found = registered().find(function);
  if (found == registered().end()) throw ptx::Fault("a kernel that was never registered");
  for (const ptx::Kernel& kernel : ptx::all_kernels())
    if (plain(kernel.name) == found->second) return kernel;
  throw ptx::Fault(text("the PTX has no kernel ", found->second));
}

thread_local const Launch* running = nullptr;  // null: the launch is for a real GPU
thread_local bool loading = false;
std::atomic<uint64_t> launches{0};

/// Returns the seed of the order of blocks: a new one for each launch, or the one to reproduce.
uint64_t next_seed() {
  const char* const given = std::getenv("ZERO_PTX_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : ++launches;
}

}  // namespace

void emulate(const Launch& launch) {
  static const CudaKernels kernels = [] {
    CudaKernels loaded;
    loading = true;
    EXPECT_EQ(load_on_cuda(kMultiprocessors, &loaded), 0);
    loading = false;
    return loaded;
  }();
  running = &launch;
  EXPECT_EQ(launch_on_cuda(nullptr, launch, kernels), 0);
  running = nullptr;
}

}  // namespace zero::test

extern "C" {

void __real___cudaRegisterFunction(void** module, const char* function, char* device_name,
                                   const char* name, int threads, uint3* thread, uint3* block,
                                   dim3* block_size, dim3* grid_size, int* warps);

void __wrap___cudaRegisterFunction(void** module, const char* function, char* device_name,
                                   const char* name, int threads, uint3* thread, uint3* block,
                                   dim3* block_size, dim3* grid_size, int* warps) {
  zero::test::registered()[function] = zero::test::plain(name);
  __real___cudaRegisterFunction(module, function, device_name, name, threads, thread, block,
                                block_size, grid_size, warps);
}

cudaError_t __real_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                          const void* function,
                                                                          int threads, size_t bytes,
                                                                          unsigned flags);

cudaError_t __wrap_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                          const void* function,
                                                                          int threads, size_t bytes,
                                                                          unsigned flags) {
  if (!zero::test::loading)
    return __real_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                         bytes, flags);
  *blocks = zero::test::kBlocks;
  return cudaSuccess;
}

cudaError_t __real_cudaLaunchKernel(const void* function, dim3 blocks, dim3 threads,
                                    void** arguments, size_t bytes, cudaStream_t stream);

cudaError_t __wrap_cudaLaunchKernel(const void* function, dim3 blocks, dim3 threads,
                                    void** arguments, size_t bytes, cudaStream_t stream) {
  using namespace zero::test;
  if (running == nullptr)
    return __real_cudaLaunchKernel(function, blocks, threads, arguments, bytes, stream);
  const uint64_t seed = next_seed();
  try {
    const ptx::Kernel& kernel = kernel_of(function);
    // Like the runtime, allows at most 2^31 - 1 blocks, and block sizes within the kernel's bounds.
    EXPECT_TRUE(blocks.x >= 1 && blocks.x < 1u << 31 && blocks.y == 1 && blocks.z == 1);
    EXPECT_TRUE(threads.x >= 1 && threads.x <= kernel.threads && threads.y == 1 && threads.z == 1);
    ptx::Memory memory(ptx::reach_of(*running), threads.x);
    ptx::run(kernel, arguments[0], blocks.x, threads.x, memory, seed);
  } catch (const ptx::Fault& fault) {
    ADD_FAILURE() << fault.what() << "; ZERO_PTX_SEED=" << seed << " has this order of blocks";
  }
  return cudaSuccess;
}

}  // extern "C"
