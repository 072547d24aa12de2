// SPDX-License-Identifier: Apache-2.0
// Arrays and lines of numbers of 16 bits to fp32 and back: narrow_element.h by vectors. Included by
// each instruction set's file behind loops.h, and in the same way.

// ---- A vector from fewer bytes: n elements

template <size_t n>
struct Few {
  typedef uint16_t Halves __attribute__((vector_size(2 * n), aligned(2), may_alias));
  typedef uint32_t Words __attribute__((vector_size(4 * n)));
  typedef int32_t Numbers __attribute__((vector_size(4 * n)));
  typedef float Floats __attribute__((vector_size(4 * n)));
  typedef float InMemory __attribute__((vector_size(4 * n), aligned(4), may_alias));
};

template <size_t n>
static inline __attribute__((always_inline)) void widen_few(typename Few<n>::Floats& to,
                                                            const float* from) {
  to = *reinterpret_cast<const typename Few<n>::InMemory*>(from);
}

/// Zeros above each half. gcc before 14 converts in two parts, but knows interleaving with zeros
/// for what it is.
template <size_t n>
static inline __attribute__((always_inline)) void read_words(typename Few<n>::Words& to,
                                                             const void* from) {
  const auto halves = *static_cast<const typename Few<n>::Halves*>(from);
#if !defined(__clang__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  using Words = typename Few<n>::Words;
  const typename Few<n>::Halves none = {};
  if constexpr (n == 16) {
    to = (Words)__builtin_shufflevector(halves, none, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                        22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                        30, 15, 31);
    return;
  } else if constexpr (n == 8) {
    to = (Words)__builtin_shufflevector(halves, none, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14,
                                        7, 15);
    return;
  } else if constexpr (n == 4) {
    to = (Words)__builtin_shufflevector(halves, none, 0, 4, 1, 5, 2, 6, 3, 7);
    return;
  }
#endif
  to = __builtin_convertvector(halves, typename Few<n>::Words);
}

template <size_t n>
static inline __attribute__((always_inline)) void widen_few(typename Few<n>::Floats& to,
                                                            const Bf16* from) {
  typename Few<n>::Words words;
  read_words<n>(words, from);
  to = (typename Few<n>::Floats)(words << 16);
}

// fp16's exponents lie 112 below fp32's. A denormal counts units of 2^-24, which fp32 can say as a
// normal number.
template <size_t n>
static inline __attribute__((always_inline)) void widen_few(typename Few<n>::Floats& to,
                                                            const F16* from) {
  using Numbers = typename Few<n>::Numbers;
  using Floats = typename Few<n>::Floats;
  typename Few<n>::Words words;
  read_words<n>(words, from);
  const Numbers magnitude = (Numbers)(words & 0x7FFF);
  const Numbers sign = (Numbers)((words & 0x8000) << 16);
  const Numbers moved = (magnitude << 13) + (112 << 23);
  const Numbers normal = moved + ((magnitude >= 0x7C00) & (112 << 23));
  const Numbers denormal = (Numbers)(__builtin_convertvector(magnitude, Floats) * 0x1p-24f);
  to = (Floats)((magnitude < 0x0400 ? denormal : normal) | sign);
}

template <size_t v, class Real, class From>
static inline __attribute__((always_inline)) void load_few(Line<Real>& line, const From* from) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    widen_few<kWidth<Real>>(line.part[v], from + v * kWidth<Real>);
  } else {
    typename Few<kWidth<Real>>::Floats few;
    widen_few<kWidth<Real>>(few, from + v * kWidth<Real>);
    line.part[v] = __builtin_convertvector(few, typename Vectors<Real>::Vector);
  }
  if constexpr (v + 1 < kVectors) load_few<v + 1>(line, from);
}

/// A line of sums from another type: exactly, but for double to float, which is rounded.
template <class Real, class From>
static inline __attribute__((always_inline)) void load(Line<Real>& line, const From* from) {
  load_few<0>(line, from);
}

static inline __attribute__((always_inline)) void load(Line<float>& line, const double* from) {
  float values[kLine<float>];
  ZERO_ROLLED
  for (size_t k = 0; k < kLine<float>; ++k) values[k] = static_cast<float>(from[k]);
  load(line, values);
}

// ---- Arrays, some cache lines at a time: with a fixed count, compilers need no second loop for
// what remains of each.

inline constexpr size_t kBatch = 32;

template <class Half>
static inline __attribute__((always_inline)) void widen_batch(float* to, const Half* from) {
  Line<float> line;
  load(line, from);
  store(to, line);
  load(line, from + kLine<float>);
  store(to + kLine<float>, line);
}

template <class Half>
static inline __attribute__((always_inline)) void narrow_batch(Half* __restrict to,
                                                               const float* __restrict from) {
  ZERO_ROLLED
  for (size_t k = 0; k < kBatch; ++k) narrow(to[k], from[k]);
}

template <class Half>
static void widen(float* to, const uint16_t* halves, size_t count) {
  const Half* const from = reinterpret_cast<const Half*>(halves);
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ask_for(from + i, 0);
    widen_batch(to + i, from + i);
  }
  if (i < count) {
    Half last[kBatch] = {};
    float wide[kBatch];
    __builtin_memcpy(last, from + i, (count - i) * sizeof(Half));
    widen_batch(wide, last);
    __builtin_memcpy(to + i, wide, (count - i) * sizeof(float));
  }
}

template <class Half>
static void narrow(uint16_t* halves, const float* from, size_t count) {
  Half* const to = reinterpret_cast<Half*>(halves);
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ask_for(to + i, 0);
    narrow_batch(to + i, from + i);
  }
  for (; i < count; ++i) narrow(to[i], from[i]);
}

/// `to` may be `from`.
template <class Half>
static void round_through(float* to, const float* from, size_t count) {
  Half halves[kBatch];
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    narrow_batch(halves, from + i);
    widen_batch(to + i, halves);
  }
  if (i < count) {
    float last[kBatch] = {};
    __builtin_memcpy(last, from + i, (count - i) * sizeof(float));
    narrow_batch(halves, last);
    widen_batch(last, halves);
    __builtin_memcpy(to + i, last, (count - i) * sizeof(float));
  }
}

// ---- bf16 parameters with remainders

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

static void split_remainder(uint16_t* __restrict param, uint16_t* __restrict remainder,
                            const float* __restrict master, size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k) split(param[i + k], remainder[i + k], master[i + k]);
  }
  for (; i < count; ++i) split(param[i], remainder[i], master[i]);
}
