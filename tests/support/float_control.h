// SPDX-License-Identifier: Apache-2.0
// The control register of vector arithmetic, which a program may set to any value.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace zero::test {

#if defined(__x86_64__)

inline constexpr uint64_t kStandardControl = 0x1F80;
inline constexpr uint64_t kFlushed = 0x8040;     // denormals, in results and operands
inline constexpr uint64_t kOddControl = 0xFFC0;  // flushed, and rounded toward zero
inline constexpr uint64_t kWhatHappened = 0x3F;  // status flags of MXCSR

inline uint64_t float_control() { return _mm_getcsr(); }
inline void set_float_control(uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }

#elif defined(__aarch64__)

inline constexpr uint64_t kStandardControl = 0;
inline constexpr uint64_t kFlushed = 1 << 24;
inline constexpr uint64_t kOddControl = kFlushed | 3 << 22;
inline constexpr uint64_t kWhatHappened = 0;  // the flags are in another register

inline uint64_t float_control() {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
inline void set_float_control(uint64_t control) {
  __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}

#endif

}  // namespace zero::test
