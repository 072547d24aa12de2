// SPDX-License-Identifier: Apache-2.0
// Computations for ptx_test.cpp on the host, and for ptx_kernels.cu, which nvcc compiles from the
// same code.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/bits.h"

namespace zero::test {

constexpr size_t kResults = 64;

struct Arguments {
  uint32_t a, b;
  uint64_t c, d;
  float x, y;
  double u, v;
};

struct Computed {
  const Arguments* in;
  uint64_t* out;  // kResults for each argument
  uint32_t count;
};

/// Stores one result after the other. All NaNs are stored as the same value.
struct Results {
  uint64_t* next;
  ZERO_ELEMENT void operator()(uint64_t word) { *next++ = word; }
  ZERO_ELEMENT void operator()(float value) {
    (*this)(uint64_t{value == value ? word_of(value) : 1});
  }
  ZERO_ELEMENT void operator()(double value) { (*this)(value == value ? word_of(value) : 1); }
};

ZERO_ELEMENT void integers(Results& out, const Arguments& at) {
  const auto a = static_cast<int32_t>(at.a), b = static_cast<int32_t>(at.b);
  const auto c = static_cast<int64_t>(at.c), d = static_cast<int64_t>(at.d);
  out(uint64_t{at.a + at.b});
  out(uint64_t{at.a - at.b});
  out(uint64_t{at.a * at.b});
  out(at.c * at.d);
  out(static_cast<uint64_t>(static_cast<int64_t>(a) * b));
  out(uint64_t{at.a} * at.b);
  out(uint64_t{at.a / (at.b | 1)});
  out(uint64_t{at.a % (at.b | 1)});
  out(static_cast<uint64_t>(c / ((d & 0xFFFF) + 3)));
  out(at.c / (at.d | 1));
  out(static_cast<uint64_t>(a >> (at.b & 31)));
  out(uint64_t{at.a >> (at.b & 31)});
  out(uint64_t{at.a << (at.b & 31)});
  out(static_cast<uint64_t>(c >> (at.b & 63)));
  out(at.c >> (at.b & 63) | at.d << (at.b & 63));
  out(static_cast<uint64_t>(a < b ? a : b));
  out(static_cast<uint64_t>(c > d ? c : d));
  out(at.c < at.d ? at.c : at.d);
  out(uint64_t{width_of(at.c)});
  out(uint64_t{width_of(at.a)});
  out((at.c & 0xFFFFFFFF) | at.d << 32);
  out(uint64_t{(at.a & 0xFF00FF00u) >> 8 | (at.b & 0x00FF00FFu) << 8});
  out(static_cast<uint64_t>(static_cast<int16_t>(at.a)));
  out(uint64_t{static_cast<uint8_t>(at.a)});
  out(static_cast<uint64_t>(static_cast<int8_t>(at.b)));
  out(~(at.c ^ at.d));
  out(static_cast<uint64_t>(-c));
  out(uint64_t{a < b} | uint64_t{at.a < at.b} << 1 | uint64_t{c <= d} << 2 |
      uint64_t{at.c >= at.d} << 3 | uint64_t{a == b} << 4);
}

template <class Real>
ZERO_ELEMENT void reals(Results& out, Real x, Real y) {
  out(x + y);
  out(x - y);
  out(x * y);
  out(x / y);
  out(1 / x);
  out(std::sqrt(x));
  out(std::fabs(y));
  out(-x);
  out(uint64_t{x < y} | uint64_t{x <= y} << 1 | uint64_t{x == y} << 2 | uint64_t{x != y} << 3 |
      uint64_t{!(x < y)} << 4 | uint64_t{!(x >= y)} << 5 | uint64_t{x != x} << 6);
  out(x < y ? y : x);
}

ZERO_HOST_DEVICE inline void compute(const Computed& computed, uint32_t i) {
  const Arguments at = computed.in[i];
  Results out{computed.out + i * kResults};
  integers(out, at);
  reals(out, at.x, at.y);
  reals(out, at.u, at.v);
  out(static_cast<float>(at.u));
  out(static_cast<double>(at.x));
  out(static_cast<double>(static_cast<int64_t>(at.c)));
  out(static_cast<float>(static_cast<uint16_t>(at.a)));
  out(real_of<float>(at.a));
}

}  // namespace zero::test
