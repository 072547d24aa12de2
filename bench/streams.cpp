// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <thread>

#include "random_fill.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace bench {
namespace {

constexpr size_t kLine = 16;     // floats in a cache line
constexpr size_t kAhead = 1024;  // bytes to prefetch ahead; faster for all except the triad

void ahead(const float* data) {
  __builtin_prefetch(reinterpret_cast<const char*>(data) + kAhead, 0, 3);
}

/// Stores that bypass the caches.
void streaming_copy(float* to, const float* from, size_t count) {
#if defined(__x86_64__)
  for (size_t i = 0; i < count; i += kLine) {
    ahead(from + i);
    for (size_t k = 0; k < kLine; k += 4) _mm_stream_ps(to + i + k, _mm_load_ps(from + i + k));
  }
  _mm_sfence();
#else
  __builtin_memcpy(to, from, count * sizeof(float));
#endif
}

/// An ordinary copy. It counts as 8 bytes, although ordinary stores move 12.
void copy(float* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; i += kLine) {
    ahead(from + i);
    for (size_t k = 0; k < kLine; k++) to[i + k] = from[i + k];
  }
}

void scale(float* data, size_t count) {
  for (size_t i = 0; i < count; i += kLine) {
    ahead(data + i);
    for (size_t k = 0; k < kLine; k++) data[i + k] = -data[i + k];
  }
}

void triad(float* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; i += kLine) {
    for (size_t k = 0; k < kLine; k++) to[i + k] = to[i + k] + 0.001f * from[i + k];
  }
}

float read(const float* data, size_t count) {
  float sums[2 * kLine] = {};
  for (size_t i = 0; i < count; i += 2 * kLine) {
    ahead(data + i);
    ahead(data + i + kLine);
    for (size_t k = 0; k < 2 * kLine; k++) sums[k] += data[i + k];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

/// The accesses of a direct step of two ranks, almost without arithmetic: two arrays are read, and
/// three are read and written.
void mix(float* __restrict to, const float* __restrict from, size_t count) {
  constexpr size_t kStagger = 640;  // bytes: the streams cross pages at different times
  const size_t part = count / 3 / kLine * kLine;
  float* const out[3] = {to, to + part, to + 2 * part};
  const float* const in[2] = {from, from + part};
  for (size_t i = 0; i < part; i += kLine) {
    for (size_t s = 0; s < 3; s++) ahead(out[s] + i + s * kStagger / sizeof(float));
    for (size_t s = 0; s < 2; s++) ahead(in[s] + i + (3 + s) * kStagger / sizeof(float));
    for (size_t k = 0; k < kLine; k++) out[0][i + k] = -out[0][i + k];
    for (size_t k = 0; k < kLine; k++) out[1][i + k] = in[0][i + k] - out[1][i + k];
    for (size_t k = 0; k < kLine; k++) out[2][i + k] = in[1][i + k] - out[2][i + k];
  }
}

float* allocate(size_t elements) {
  const size_t bytes = elements * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<float*>(memory);
}

}  // namespace

Streams::Streams(const Rank& rank, size_t elements)
    : rank_(rank), elements_(elements), to_(allocate(elements)), from_(allocate(elements)) {
  random_fill(to_, elements, 1, static_cast<uint64_t>(2 * rank.rank));
  random_fill(from_, elements, 1, static_cast<uint64_t>(2 * rank.rank + 1));
}

Streams::~Streams() {
  munmap(to_, elements_ * sizeof(float));
  munmap(from_, elements_ * sizeof(float));
}

void Streams::run(Stream stream) {
  const size_t part = elements_ / static_cast<size_t>(rank_.threads) / 1024 * 1024;
  const auto work = [&](int thread) {
    float* to = to_ + part * static_cast<size_t>(thread);
    const float* from = from_ + part * static_cast<size_t>(thread);
    const size_t count =
        thread + 1 == rank_.threads ? elements_ - static_cast<size_t>(to - to_) : part;
    static std::atomic<float> sink;
    switch (stream) {
      case kStreamingCopy:
        return streaming_copy(to, from, count);
      case kCopy:
        return copy(to, from, count);
      case kScale:
        return scale(to, count);
      case kTriad:
        return triad(to, from, count);
      case kMix:
        return mix(to, from, count);
      default:
        sink.store(read(from, count), std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> helpers;
  for (int thread = 1; thread < rank_.threads; thread++) helpers.emplace_back(work, thread);
  work(0);
  for (std::thread& helper : helpers) helper.join();
}

void Streams::round(int first, bool keep) {
  for (int stream = 0; stream < kStreams; stream++) {
    rank_.time(first + stream, keep, [&] { run(static_cast<Stream>(stream)); });
  }
}

double Streams::bytes(Stream stream, size_t elements, int world) {
  return kStreamInfo[stream].bytes_per_element * static_cast<double>(elements) * world;
}

}  // namespace bench
