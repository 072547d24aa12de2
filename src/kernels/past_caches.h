// SPDX-License-Identifier: Apache-2.0
// Copies data that is not read again soon.
#pragma once

#include <cstddef>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace zero {

/// Copies to an address that is a multiple of 16 bytes. Afterwards the caches hold only the source,
/// which somebody changes next.
inline void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  size_t done = 0;
#if defined(__x86_64__)
  for (; done + sizeof(__m128i) <= bytes; done += sizeof(__m128i)) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done), part);
  }
  _mm_sfence();
#endif
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace zero
