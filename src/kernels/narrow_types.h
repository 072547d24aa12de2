// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits to fp32 and back, in integer arithmetic: hardware's own conversions flush
// denormals or are missing. Included by each instruction set's file behind loops.h, and in the same
// way.

// ---- One element

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline constexpr int32_t kMagnitude = 0x7FFFFFFF;
inline constexpr int32_t kInfinityBits = 0x7F800000;
inline constexpr int32_t kQuietNan = 0x7FC00000;

static inline __attribute__((always_inline)) int32_t bits_of(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline __attribute__((always_inline)) float float_of(int32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

static inline __attribute__((always_inline)) float widened(float value) { return value; }
static inline __attribute__((always_inline)) double widened(double value) { return value; }

static inline __attribute__((always_inline)) float widened(Bf16 half) {
  return float_of(static_cast<int32_t>(uint32_t{half.bits} << 16));
}

// fp16's exponents lie 112 below fp32's. A denormal counts units of 2^-24, which fp32 can say as a
// normal number.
static inline __attribute__((always_inline)) float widened(F16 half) {
  const int32_t magnitude = half.bits & 0x7FFF;
  const int32_t sign = static_cast<int32_t>(uint32_t{half.bits} << 16 & 0x80000000);
  const int32_t moved = (magnitude << 13) + (112 << 23);
  const int32_t topmost = magnitude >= 0x7C00 ? moved + (112 << 23) : moved;
  const int32_t denormal = bits_of(static_cast<float>(magnitude) * 0x1p-24f);
  return float_of((magnitude < 0x0400 ? denormal : topmost) | sign);
}

// Every NaN becomes the same one: those that arithmetic makes differ between instruction sets.
static inline __attribute__((always_inline)) void narrow(Bf16& to, float from) {
  const int32_t bits = bits_of(from);
  const uint32_t word = static_cast<uint32_t>(bits);
  const uint32_t rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16;
  to.bits = static_cast<uint16_t>((bits & kMagnitude) > kInfinityBits ? kQuietNan >> 16 : rounded);
}

// Adding 0.5, whose last place is 2^-24, rounds to fp16's denormals. Up to half of the least one
// that gives zero, and what is denormal in fp32 need not reach the addition.
static inline __attribute__((always_inline)) void narrow(F16& to, float from) {
  const int32_t bits = bits_of(from);
  const int32_t magnitude = bits & kMagnitude;
  const int32_t moved = ((magnitude + 0x0FFF + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
  const int32_t normal = moved < 0x7C00 ? moved : 0x7C00;
  const float reached = float_of(magnitude > (102 << 23) ? magnitude : 0);
  const int32_t denormal = bits_of(reached + 0.5f) - bits_of(0.5f);
  const int32_t number = (magnitude < (113 << 23) ? denormal : normal) | (bits >> 16 & 0x8000);
  to.bits = static_cast<uint16_t>(magnitude > kInfinityBits ? 0x7E00 : number);
}

// ---- A line of sums

/// From another type: exactly, but for double to float, which is rounded.
template <class Real, class From>
static inline __attribute__((always_inline)) void load(Line<Real>& line, const From* from) {
  Real values[kLine<Real>];
  ZERO_ROLLED
  for (size_t k = 0; k < kLine<Real>; ++k) values[k] = static_cast<Real>(widened(from[k]));
  load(line, values);
}

// ---- Arrays, some cache lines at a time: with a fixed count, compilers need no second loop for
// what remains of each.

inline constexpr size_t kBatch = 32;

template <class Half>
static void widen(float* __restrict to, const uint16_t* __restrict from, size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ask_for(from + i, 0);
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k) to[i + k] = widened(Half{from[i + k]});
  }
  for (; i < count; ++i) to[i] = widened(Half{from[i]});
}

template <class Half>
static inline __attribute__((always_inline)) uint16_t narrowed(float value) {
  Half half;
  narrow(half, value);
  return half.bits;
}

template <class Half>
static void narrow(uint16_t* __restrict to, const float* __restrict from, size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ask_for(to + i, 0);
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k) to[i + k] = narrowed<Half>(from[i + k]);
  }
  for (; i < count; ++i) to[i] = narrowed<Half>(from[i]);
}

/// `to` may be `from`.
template <class Half>
static void round_through(float* to, const float* from, size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    float rounded[kBatch];
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k) rounded[k] = widened(Half{narrowed<Half>(from[i + k])});
    __builtin_memcpy(to + i, rounded, sizeof rounded);
  }
  for (; i < count; ++i) to[i] = widened(Half{narrowed<Half>(from[i])});
}

// ---- A bf16 parameter with the 16 bits that its fp32 master has beyond it. The parameter is the
// master rounded half away from zero, so it lies one above the master's upper half where the lower
// half, read as a signed number, is negative. Under ties to even that half would not tell.

static inline __attribute__((always_inline)) float joined(uint16_t param, uint16_t remainder) {
  const uint32_t upper = uint32_t{param} << 16;
  return float_of(static_cast<int32_t>(upper + static_cast<uint32_t>(int16_t(remainder))));
}

static void join_remainder(float* __restrict master, const uint16_t* __restrict param,
                           const uint16_t* __restrict remainder, size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ask_for(param + i, 0);
    ask_for(remainder + i, 1);
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k) master[i + k] = joined(param[i + k], remainder[i + k]);
  }
  for (; i < count; ++i) master[i] = joined(param[i], remainder[i]);
}

// The carry out of a NaN would make it a number.
static inline __attribute__((always_inline)) void split(uint16_t& param, uint16_t& remainder,
                                                        float master) {
  const int32_t any = bits_of(master);
  const int32_t bits = (any & kMagnitude) > kInfinityBits ? kQuietNan : any;
  param = static_cast<uint16_t>((static_cast<uint32_t>(bits) + 0x8000) >> 16);
  remainder = static_cast<uint16_t>(bits);
}

static void split_remainder(uint16_t* __restrict param, uint16_t* __restrict remainder,
                            const float* __restrict master, size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k) split(param[i + k], remainder[i + k], master[i + k]);
  }
  for (; i < count; ++i) split(param[i], remainder[i], master[i]);
}
