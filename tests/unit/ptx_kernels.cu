// SPDX-License-Identifier: Apache-2.0
// Kernels for ptx_test.cpp: correct ones, and for each a version with a fault.
#include <cstdint>

#include "unit/ptx_arithmetic.h"

namespace {

/// Adds the sums of blocks. The last block to arrive does it.
template <bool fences>
__device__ void add_up(const uint32_t* in, uint32_t* parts, uint32_t* done, uint32_t* sum) {
  __shared__ uint32_t values[64];
  __shared__ uint32_t rank;
  values[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t own = 0;
    for (uint32_t i = 0; i < 64; i++) own += values[i];
    parts[blockIdx.x] = own;
    if (fences) __threadfence();
    rank = atomicAdd(done, 1u);
    if (fences) __threadfence();
  }
  __syncthreads();
  if (rank + 1 == gridDim.x && threadIdx.x == 1) {
    uint32_t all = 0;
    for (uint32_t i = 0; i < gridDim.x; i++) all += parts[i];
    *sum = all;
  }
}

struct Words {
  const uint32_t* in;
  uint32_t* out;
  uint32_t* more;
  uint32_t count;
};

__device__ uint32_t turned(const Words& words, bool waits) {
  __shared__ uint32_t values[64];
  values[threadIdx.x] = words.in[threadIdx.x];
  if (waits) __syncthreads();
  return values[63 - threadIdx.x];
}

}  // namespace

__global__ void sums_of_blocks(Words words) {
  add_up<true>(words.in, words.more, words.more + 60, words.out);
}
__global__ void sums_of_blocks_without_fences(Words words) {
  add_up<false>(words.in, words.more, words.more + 60, words.out);
}
__global__ void turn(Words words) { words.out[threadIdx.x] = turned(words, true); }
__global__ void turn_without_barrier(Words words) { words.out[threadIdx.x] = turned(words, false); }
__global__ void write_one_too_many(Words words) { words.out[threadIdx.x + 1] = 1; }
__global__ void read_one_too_many(Words words) {
  words.out[threadIdx.x] = words.in[words.count * (threadIdx.x + 1)];
}
__global__ void write_what_is_read(Words words) {
  const_cast<uint32_t*>(words.in)[threadIdx.x] = 1;
}
__global__ void read_wide_at(Words words) {
  const uint4 wide = *reinterpret_cast<const uint4*>(words.in + words.count);
  words.out[threadIdx.x] = wide.x + wide.w;
}
__global__ void count_in_all_blocks(Words words) {
  if (threadIdx.x == 0) *words.out += 1;
}
__global__ void count_in_all_blocks_by_atomics(Words words) {
  if (threadIdx.x == 0) atomicAdd(words.out, 1u);
}
__global__ void read_what_the_neighbour_wrote(Words words) {
  words.out[threadIdx.x] = threadIdx.x;
  words.more[threadIdx.x] = words.out[threadIdx.x ^ 1];
}
__global__ void write_what_the_neighbour_read(Words words) {
  words.more[threadIdx.x] = words.out[threadIdx.x ^ 1];
  words.out[threadIdx.x] = threadIdx.x;
}
__global__ void index_in_32_bits(Words words) {
  words.out[threadIdx.x] = words.in[words.count * 0x40000000u + threadIdx.x];
}
__global__ void index_in_64_bits(Words words) {
  words.out[threadIdx.x] = words.in[words.count * uint64_t{0x40000000} + threadIdx.x];
}
__global__ void meet_some(Words words) {
  if (threadIdx.x < words.count) __syncthreads();
  words.out[threadIdx.x] = 1;
}
__global__ void exchange(Words words) {
  const uint32_t own = words.in[threadIdx.x];
  words.out[threadIdx.x] =
      __shfl_xor_sync(0xFFFFFFFF, own, 5) + __shfl_xor_sync(0xFFFFFFFF, own, 8, 16);
}
__global__ void exchange_some(Words words) {
  if (threadIdx.x < words.count)
    words.out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, threadIdx.x, 1);
}

__global__ void compute_each(zero::test::Computed computed) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < computed.count) compute(computed, i);
}
