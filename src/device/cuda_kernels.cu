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

constexpr uint32_t kThreads = 256;
// As many as can be resident at once: a block takes what is left when others are done.
constexpr uint32_t kBlocksPerMultiprocessor = 2048 / kThreads;

template <int32_t optimizer, class Real>
__global__ void __launch_bounds__(kThreads, 2) update_kernel(const Update launch) {
  if (!is_made(*launch.state)) return;
  uint32_t found = 0;
  for (uint32_t tile = blockIdx.x; tile < launch.count; tile += gridDim.x)
    found += update_tile<optimizer, Real>(launch, tile, threadIdx.x, kThreads);
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

template <class Real>
__global__ void __launch_bounds__(kThreads) reduce_kernel(const Reduce launch) {
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
    if (piece < launch.count) found = reduce_lane<Real>(launch, piece, lane);
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

__global__ void __launch_bounds__(kThreads) move_kernel(const Moves launch) {
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

/// Where launches go.
class Queue {
 public:
  Queue(cudaStream_t stream, int multiprocessors)
      : stream_(stream),
        most_blocks_(static_cast<uint32_t>(multiprocessors) * kBlocksPerMultiprocessor) {}

  cudaError_t operator()(const Update& launch) const {
    cudaError_t error = cudaSuccess;
    const bool known = with_rule(launch.optimizer, [&](auto optimizer) {
      constexpr int32_t number = decltype(optimizer)::value;
      const auto kernel = launch.format.sum == DType::f64 ? update_kernel<number, double>
                                                          : update_kernel<number, float>;
      error = run(kernel, launch, launch.count, 1);
    });
    return known ? error : cudaErrorNotSupported;
  }
  cudaError_t operator()(const Reduce& launch) const {
    const auto kernel =
        launch.format.sum == DType::f64 ? reduce_kernel<double> : reduce_kernel<float>;
    return run(kernel, launch, launch.count, kThreads / kLanes);
  }
  cudaError_t operator()(const Clamp& launch) const {
    const auto kernel = launch.sum == DType::f64 ? clamp_kernel<double> : clamp_kernel<float>;
    return run(kernel, launch, launch.count, kThreads / kLanes);
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
    const uint32_t blocks = (count - 1) / each + 1;
    void* arguments[] = {&record};
    return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                            dim3(blocks < most_blocks_ ? blocks : most_blocks_), dim3(threads),
                            arguments, 0, stream_);
  }

  const cudaStream_t stream_;
  const uint32_t most_blocks_;
};

}  // namespace

int launch_on_cuda(void* stream, const Launch& launch, int multiprocessors) {
  const Queue queue(static_cast<cudaStream_t>(stream), multiprocessors);
  return std::visit(queue, launch);
}

}  // namespace zero
