// SPDX-License-Identifier: Apache-2.0
// Kernels that distribute the functions of kernels/launch_*.h over threads and blocks. This file is
// compiled without contraction to fma, with IEEE division and square root, and with denormals, so
// its results are bitwise identical to the host's.
#include <cuda_runtime.h>

#include <utility>
#include <variant>

#include "device/cuda_launch.h"
#include "kernels/launch_moves.h"
#include "kernels/launch_update.h"

namespace zero {
namespace {

using namespace launch;

// Launch bounds give the number of blocks of a kernel that a multiprocessor should hold. It is
// larger for kernels whose threads have fewer loads in flight.
constexpr uint32_t kThreads = 256;

/// A rule that always has three or more slots loads so much of a group at a time that its registers
/// do not fit two blocks.
template <class Of>
constexpr int kUpdateBlocks = kSlotsAlways<Of> < 3 ? 2 : 1;

template <class Of, class Real, SlotFormat format>
__global__ void __launch_bounds__(kThreads, kUpdateBlocks<Of>) update_kernel(const Update launch) {
  if (!is_made(*launch.state)) return;
  uint32_t found = 0;
  for (uint32_t tile = blockIdx.x; tile < launch.count; tile += gridDim.x)
    update_tile<Of, Real, format>(launch, tile, threadIdx.x, kThreads, found);
  if (found != 0 && launch.nonfinite != nullptr) AddShared()(*launch.nonfinite, found);
}

/// Combines the findings of a piece's lanes, which are adjacent in a warp. The whole warp must call
/// this.
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

// ---- Host side

/// The work of a launch: a kernel, and `count` items of which a block processes `each` at a time.
struct Work {
  const void* kernel = nullptr;  // null if no launch implements the rule
  uint32_t count = 0, each = 1, threads = kThreads;
};

template <class Record>
Work work(void (*kernel)(Record), uint32_t count, uint32_t each, uint32_t threads = kThreads) {
  return {reinterpret_cast<const void*>(kernel), count, each, threads};
}

Work work_of_update(const Update& launch) {
  Work found;
  with_rule(launch.optimizer, [&](auto rule) {
    using Of = decltype(rule);
    if constexpr (kUpdatesElements<Of>) {
      with_arithmetic(launch.format, [&](auto real, auto slots) {
        found = work(update_kernel<Of, decltype(real), slots()>, launch.count, 1);
      });
    }
  });
  return found;
}
template <class Real>
Work work_in(const Reduce& launch) {
  const auto kernel =
      launch.width == 1 ? reduce_kernel<Real, 1> : reduce_kernel<Real, kTogether<Real>>;
  return work(kernel, launch.count, kThreads / kLanes);
}
template <class Real>
Work work_in(const Clamp& launch) {
  return work(clamp_kernel<Real>, launch.count, kThreads / kLanes);
}

/// Returns the work with the type of the sums.
template <class Record>
Work work_in(DType sum, const Record& launch) {
  return sum == DType::f64 ? work_in<double>(launch) : work_in<float>(launch);
}

struct WorkOf {
  Work operator()(const Update& launch) const { return work_of_update(launch); }
  Work operator()(const Reduce& launch) const { return work_in(launch.format.sum, launch); }
  Work operator()(const Clamp& launch) const { return work_in(launch.sum, launch); }
  Work operator()(const Moves& launch) const { return work(move_kernel, launch.count, 1); }
  Work operator()(const Fetch& launch) const { return work(fetch_kernel, launch.count, kThreads); }
  Work operator()(const Prepare& launch) const {
    return work(prepare_kernel, launch.count, kThreads);
  }
  /// Uses at least one block, because the state advances even if there are no parameters.
  Work operator()(const Advance& launch) const {
    return work(advance_kernel, launch.count == 0 ? 1 : launch.count, kThreads);
  }
  Work operator()(const Decide&) const { return work(decide_kernel, 1, 1, 1); }
};

/// Calls `visit` with a launch of every kernel.
template <class Visit>
void for_each_kernel(const Visit& visit) {
  visit(Moves());
  visit(Fetch());
  visit(Prepare());
  visit(Advance());
  visit(Decide());
  for (const DType sum : {DType::f32, DType::f64}) {
    for (int32_t rule = 0; rule < kRuleCount; rule++) {
      visit(Update{.format = {.sum = sum}, .optimizer = rule});
      if (sum == DType::f32)
        visit(Update{.format = {.slots = SlotFormat::bf16}, .optimizer = rule});
    }
    for (const uint32_t width : {1, 2}) visit(Reduce{.format = {.sum = sum}, .width = width});
    visit(Clamp{.sum = sum});
  }
}

template <size_t... each>
Work work_of(size_t index, const void* record, std::index_sequence<each...>) {
  Work found;
  ((index == each
        ? (void)(found = WorkOf()(
                     *static_cast<const std::variant_alternative_t<each, Launch>*>(record)))
        : (void)0),
   ...);
  return found;
}

}  // namespace

/// Loads each kernel by querying how many of its blocks fit.
int load_on_cuda(int multiprocessors, CudaKernels* kernels) {
  cudaError_t error = cudaSuccess;
  for_each_kernel([&](const auto& launch) {
    const void* const kernel = WorkOf()(launch).kernel;
    if (kernel == nullptr || error != cudaSuccess) return;
    if (kernels->count == CudaKernels::kMost) return (void)(error = cudaErrorInvalidValue);
    int blocks = 0;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, kernel, kThreads, 0,
                                                                   cudaOccupancyDefault);
    kernels->all[kernels->count++] = {kernel, static_cast<uint32_t>(blocks * multiprocessors)};
  });
  return error;
}

/// Starts at most as many blocks as the device holds at once. Each block loops until no work is
/// left for it.
int launch_record_on_cuda(void* stream, size_t index, const void* record,
                          const CudaKernels& kernels) {
  const Work work =
      work_of(index, record, std::make_index_sequence<std::variant_size_v<Launch>>());
  if (work.kernel == nullptr) return cudaErrorNotSupported;
  if (work.count == 0) return cudaSuccess;
  const uint32_t blocks = (work.count - 1) / work.each + 1;
  int k = 0;
  while (k < kernels.count && kernels.all[k].function != work.kernel) k++;
  if (k == kernels.count) return cudaErrorInvalidDeviceFunction;
  const uint32_t most = kernels.all[k].blocks;
  void* arguments[] = {const_cast<void*>(record)};
  return cudaLaunchKernel(work.kernel, dim3(blocks < most ? blocks : most), dim3(work.threads),
                          arguments, 0, static_cast<cudaStream_t>(stream));
}

}  // namespace zero
