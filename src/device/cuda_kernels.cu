// SPDX-License-Identifier: Apache-2.0
// Kernels: threads and blocks around the bodies of kernels/launch_*.h. Compiled without contraction
// to fma, with IEEE division and square root and with denormals: the bits are the host's.
#include <cuda_runtime.h>

#include <variant>

#include "device/cuda_launch.h"
#include "kernels/launch_moves.h"
#include "kernels/launch_update.h"

namespace zero {
namespace {

using namespace launch;

// Launch bounds name the blocks that a multiprocessor is to hold of a kernel: more where each thread
// waits for less.
constexpr uint32_t kThreads = 256;

/// A rule that always has three slots or more reads so much of a group at a time that the registers
/// of two blocks do not hold it.
template <class Of>
constexpr int kUpdateBlocks = kSlotsAlways<Of> < 3 ? 2 : 1;

template <class Of, class Real>
__global__ void __launch_bounds__(kThreads, kUpdateBlocks<Of>) update_kernel(const Update launch) {
  if (!is_made(*launch.state)) return;
  uint32_t found = 0;
  for (uint32_t tile = blockIdx.x; tile < launch.count; tile += gridDim.x)
    update_tile<Of, Real>(launch, tile, threadIdx.x, kThreads, found);
  if (found != 0 && launch.nonfinite != nullptr) AddShared()(*launch.nonfinite, found);
}

/// Of the lanes of a piece, which are neighbours in a warp, all of which come here.
__device__ Found of_all_lanes(Found found) {
  for (int further = kLanes / 2; further > 0; further /= 2) {
    constexpr unsigned all = 0xFFFFFFFF;
    const Found other = {__shfl_xor_sync(all, found.norm, further),
                         __shfl_xor_sync(all, found.magnitude, further),
                         __shfl_xor_sync(all, found.nonfinite, further)};
    found = combined(found, other);
  }
  return found;
}

template <class Real, uint32_t together>
__global__ void __launch_bounds__(kThreads, together == 1 ? 5 : 2)
    reduce_kernel(const Reduce launch) {
  __shared__ uint64_t room[sizeof(NormSums) / sizeof(uint64_t)];
  NormSums& block = *reinterpret_cast<NormSums*>(room);
  for (uint32_t i = threadIdx.x; i < sizeof(NormSums) / sizeof(uint64_t); i += kThreads)
    room[i] = 0;
  __syncthreads();
  constexpr uint32_t pieces = kThreads / kLanes;
  const uint32_t lane = threadIdx.x % kLanes;
  for (uint32_t first = blockIdx.x * pieces; first < launch.count; first += gridDim.x * pieces) {
    const uint32_t piece = first + threadIdx.x / kLanes;
    Found found;
    if (piece < launch.count) found = reduce_lane<Real, together>(launch, piece, lane);
    found = of_all_lanes(found);
    if (lane == 0 && piece < launch.count) add_piece<Real>(block, found, launch.norm);
  }
  __syncthreads();
  if (threadIdx.x < kRecordParts) add_record(*launch.record, block, threadIdx.x);
}

__global__ void decide_kernel(const Decide launch) { decide(launch); }

__global__ void __launch_bounds__(kThreads) fetch_kernel(const Fetch launch) {
  uint32_t number = blockIdx.x * kThreads + threadIdx.x;
  for (; number < launch.count; number += gridDim.x * kThreads) fetch_given(launch, number);
}

__global__ void __launch_bounds__(kThreads) prepare_kernel(const Prepare launch) {
  uint32_t cls = blockIdx.x * kThreads + threadIdx.x;
  for (; cls < launch.count; cls += gridDim.x * kThreads) prepare_class(launch, cls);
}

__global__ void __launch_bounds__(kThreads) advance_kernel(const Advance launch) {
  uint32_t param = blockIdx.x * kThreads + threadIdx.x;
  if (param == 0) advance_state(launch);
  for (; param < launch.count; param += gridDim.x * kThreads) advance_param(launch, param);
}

__global__ void __launch_bounds__(kThreads, 5) move_kernel(const Moves launch) {
  if (launch.unless_skipped != nullptr && !is_made(*launch.unless_skipped)) return;
  for (uint32_t tile = blockIdx.x; tile < launch.count; tile += gridDim.x)
    move_tile(launch, tile, threadIdx.x, kThreads);
}

template <class Real>
__global__ void __launch_bounds__(kThreads) clamp_kernel(const Clamp launch) {
  constexpr uint32_t pieces = kThreads / kLanes;
  uint32_t piece = blockIdx.x * pieces + threadIdx.x / kLanes;
  for (; piece < launch.count; piece += gridDim.x * pieces)
    clamp_lane<Real>(launch, piece, threadIdx.x % kLanes);
}

// ---- From the host

template <class Real>
struct KernelsOf {
  template <class Of>
  static auto update() {
    return update_kernel<Of, Real>;
  }
  static constexpr auto reduce_one = reduce_kernel<Real, 1>;
  static constexpr auto reduce_many = reduce_kernel<Real, kTogether<Real>>;
  static constexpr auto clamp = clamp_kernel<Real>;
};

/// body(KernelsOf<Real>{})
template <class Body>
auto with_sum(DType sum, const Body& body) {
  return sum == DType::f64 ? body(KernelsOf<double>()) : body(KernelsOf<float>());
}

template <class Record>
const void* handle(void (*kernel)(Record)) {
  return reinterpret_cast<const void*>(kernel);
}

/// Where launches go. There are no more blocks than the device holds at once: one takes what is
/// left when others are done.
class Queue {
 public:
  Queue(cudaStream_t stream, const CudaKernels& kernels) : stream_(stream), kernels_(kernels) {}

  cudaError_t operator()(const Update& launch) const {
    cudaError_t error = cudaErrorNotSupported;
    with_sum(launch.format.sum, [&](auto kernels) {
      return with_rule(launch.optimizer, [&](auto rule) {
        if constexpr (kUpdatesElements<decltype(rule)>)
          error = run(kernels.template update<decltype(rule)>(), launch, launch.count, 1);
      });
    });
    return error;
  }
  cudaError_t operator()(const Reduce& launch) const {
    return with_sum(launch.format.sum, [&](auto kernels) {
      return run(launch.width == 1 ? kernels.reduce_one : kernels.reduce_many, launch, launch.count,
                 kThreads / kLanes);
    });
  }
  cudaError_t operator()(const Clamp& launch) const {
    return with_sum(launch.sum, [&](auto kernels) {
      return run(kernels.clamp, launch, launch.count, kThreads / kLanes);
    });
  }
  cudaError_t operator()(const Moves& launch) const {
    return run(move_kernel, launch, launch.count, 1);
  }
  cudaError_t operator()(const Fetch& launch) const {
    return run(fetch_kernel, launch, launch.count, kThreads);
  }
  cudaError_t operator()(const Prepare& launch) const {
    return run(prepare_kernel, launch, launch.count, kThreads);
  }
  /// The state advances where no parameter does.
  cudaError_t operator()(const Advance& launch) const {
    return run(advance_kernel, launch, launch.count == 0 ? 1 : launch.count, kThreads);
  }
  cudaError_t operator()(const Decide& launch) const { return run(decide_kernel, launch, 1, 1, 1); }

 private:
  /// Blocks for `count` things, each of which takes `each` of them at a time.
  template <class Record>
  cudaError_t run(void (*kernel)(Record), Record record, uint32_t count, uint32_t each,
                  uint32_t threads = kThreads) const {
    if (count == 0) return cudaSuccess;
    const uint32_t blocks = (count - 1) / each + 1, most = kernels_.at(handle(kernel));
    void* arguments[] = {&record};
    return cudaLaunchKernel(handle(kernel), dim3(blocks < most ? blocks : most), dim3(threads),
                            arguments, 0, stream_);
  }

  const cudaStream_t stream_;
  const CudaKernels& kernels_;
};

/// Asking for what a kernel takes loads it.
class Loader {
 public:
  Loader(int multiprocessors, CudaKernels& kernels)
      : multiprocessors_(multiprocessors), kernels_(kernels) {}

  template <class Record>
  void load(void (*kernel)(Record)) {
    int blocks = 0;
    if (error == cudaSuccess)
      error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0);
    kernels_[handle(kernel)] = static_cast<uint32_t>(blocks * multiprocessors_);
  }
  template <class Real>
  void load_all_of() {
    for (int32_t number = 0; number < kRuleCount; number++)
      with_rule(number, [&](auto rule) {
        if constexpr (kUpdatesElements<decltype(rule)>)
          load(KernelsOf<Real>::template update<decltype(rule)>());
      });
    load(KernelsOf<Real>::reduce_one);
    load(KernelsOf<Real>::reduce_many);
    load(KernelsOf<Real>::clamp);
  }

  cudaError_t error = cudaSuccess;

 private:
  const int multiprocessors_;
  CudaKernels& kernels_;
};

}  // namespace

int load_on_cuda(int multiprocessors, CudaKernels* kernels) {
  Loader loader(multiprocessors, *kernels);
  loader.load_all_of<float>();
  loader.load_all_of<double>();
  loader.load(move_kernel);
  loader.load(fetch_kernel);
  loader.load(prepare_kernel);
  loader.load(advance_kernel);
  loader.load(decide_kernel);
  return loader.error;
}

int launch_on_cuda(void* stream, const Launch& launch, const CudaKernels& kernels) {
  return std::visit(Queue(static_cast<cudaStream_t>(stream), kernels), launch);
}

}  // namespace zero
