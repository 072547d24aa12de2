// SPDX-License-Identifier: Apache-2.0
// Reads and writes the control registers of vector arithmetic. It is in a separate file, so that it
// is not inlined into arithmetic that must see the change.
#include "base/float_environment.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace zero {
namespace {

#if defined(__x86_64__)

constexpr uint64_t kStandard = 0x1F80;  // MXCSR: all exceptions masked, nearest, denormals kept

uint64_t read_control() { return _mm_getcsr(); }
void write_control(uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }

#elif defined(__aarch64__)

constexpr uint64_t kStandard = 0;  // FPCR: no traps, nearest, denormals kept, NaNs propagate

uint64_t read_control() {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void write_control(uint64_t control) {
  __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}

#else

constexpr uint64_t kStandard = FE_TONEAREST;

uint64_t read_control() { return static_cast<uint64_t>(std::fegetround()); }
void write_control(uint64_t control) { std::fesetround(static_cast<int>(control)); }

#endif

}  // namespace

FloatEnvironment::FloatEnvironment() : saved_(read_control()) { write_control(kStandard); }

// On x86 this also restores the sticky exception flags, which libzero's arithmetic may have set.
FloatEnvironment::~FloatEnvironment() { write_control(saved_); }

}  // namespace zero
