// SPDX-License-Identifier: Apache-2.0
// Converts arrays and lines of 16-bit numbers to fp32 and back, as narrow_element.h does, in
// vectors. The file of each instruction set includes this after loops.h, in the same way.

// ---- A vector of n numbers from fewer bytes

template <size_t n>
static inline __attribute__((always_inline)) void widen_few(Vector<float, n>& to,
                                                            const float* from) {
  to = *reinterpret_cast<const InMemory<float, n>*>(from);
}

#if !defined(__clang__) && __GNUC__ >= 12
template <size_t n, size_t... k>
static inline __attribute__((always_inline)) void interleave_with_zeros(
    Vector<uint32_t, n>& to, const Vector<uint16_t, n>& halves, Numbers<k...>) {
  const Vector<uint16_t, n> zeros = {};
  to = (Vector<uint32_t, n>)__builtin_shufflevector(halves, zeros, (k / 2 + k % 2 * n)...);
}
#endif

/// Reads 16-bit halves into words, with zeros above them. gcc before 14 converts in two parts, but
/// recognizes interleaving with zeros.
template <size_t n>
static inline __attribute__((always_inline)) void read_words(Vector<uint32_t, n>& to,
                                                             const void* from) {
  const Vector<uint16_t, n> halves = *static_cast<const InMemory<uint16_t, n>*>(from);
#if !defined(__clang__) && __GNUC__ >= 12 && defined(__BYTE_ORDER__) && \
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if constexpr (n > 2)
    return interleave_with_zeros<n>(to, halves, std::make_index_sequence<2 * n>());
#endif
  to = __builtin_convertvector(halves, Vector<uint32_t, n>);
}

template <size_t n>
static inline __attribute__((always_inline)) void widen_few(Vector<float, n>& to,
                                                            const Bf16* from) {
  Vector<uint32_t, n> words;
  read_words<n>(words, from);
  to = (Vector<float, n>)(words << 16);
}

template <size_t n>
static inline __attribute__((always_inline)) void widen_few(Vector<float, n>& to, const F16* from) {
  using Integers = Vector<int32_t, n>;
  Vector<uint32_t, n> words;
  read_words<n>(words, from);
  const Integers magnitude = (Integers)(words & 0x7FFF);
  const Integers sign = (Integers)((words & 0x8000) << 16);
  const Integers moved = (magnitude << 13) + (112 << 23);
  const Integers normal = moved + ((magnitude >= 0x7C00) & (112 << 23));
  const auto units = __builtin_convertvector(magnitude, Vector<float, n>);
  const Integers denormal = (Integers)(units * 0x1p-24f);
  to = (Vector<float, n>)((magnitude < 0x0400 ? denormal : normal) | sign);
}

template <size_t v, class Real, class From>
static inline __attribute__((always_inline)) void load_few(Line<Real>& line, const From* from) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    widen_few<kWidth<Real>>(line.part[v], from + v * kWidth<Real>);
  } else {
    Vector<float, kWidth<Real>> few;
    widen_few<kWidth<Real>>(few, from + v * kWidth<Real>);
    line.part[v] = __builtin_convertvector(few, Vector<Real, kWidth<Real>>);
  }
  if constexpr (v + 1 < kVectors) load_few<v + 1>(line, from);
}

/// Loads a line of sums from another type, exactly except from double to float.
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

// ---- Arrays, some cache lines at a time. With a fixed count, compilers generate no second loop
// for the rest.

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
  for (size_t k = 0; k < kBatch; ++k) to[k] = Half::of(from[k]);
}

template <class Half>
static inline __attribute__((always_inline)) void round_batch(float* to, const float* from) {
  Half halves[kBatch];
  narrow_batch(halves, from);
  widen_batch(to, halves);
}

/// Converts in batches. The last batch is filled up with zeros.
template <auto batch, class To, class From>
static inline __attribute__((always_inline)) void in_batches(To* to, const From* from,
                                                             size_t count) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ask_for(from + i, 0);
    batch(to + i, from + i);
  }
  if (i < count) {
    From last[kBatch] = {};
    To converted[kBatch];
    __builtin_memcpy(last, from + i, (count - i) * sizeof(From));
    batch(converted, last);
    __builtin_memcpy(to + i, converted, (count - i) * sizeof(To));
  }
}

template <class Half>
static void widen(float* to, const uint16_t* from, size_t count) {
  in_batches<widen_batch<Half>>(to, reinterpret_cast<const Half*>(from), count);
}

template <class Half>
static void narrow(uint16_t* to, const float* from, size_t count) {
  in_batches<narrow_batch<Half>>(reinterpret_cast<Half*>(to), from, count);
}

/// Narrows and widens again. `to` may be `from`.
template <class Half>
static void round_through(float* to, const float* from, size_t count) {
  in_batches<round_batch<Half>>(to, from, count);
}

static void round_at_random(uint16_t* __restrict to, const float* __restrict from, size_t count,
                            uint32_t key, uint32_t position) {
  size_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    ZERO_ROLLED
    for (size_t k = 0; k < kBatch; ++k)
      to[i + k] = rounded_at_random(from[i + k], key, position + static_cast<uint32_t>(i + k));
  }
  for (; i < count; ++i)
    to[i] = rounded_at_random(from[i], key, position + static_cast<uint32_t>(i));
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
