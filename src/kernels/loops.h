// SPDX-License-Identifier: Apache-2.0
// The loops over elements. Included once by each instruction set's file, inside that file's
// namespace and its target region, so nothing is included from here: a standard header's inline
// function compiled there would serve the whole program. Plain loops in the order of the contract;
// compilers vectorize them.

#ifdef __FAST_MATH__
#error "libzero's kernels promise bits: compile them without -ffast-math"
#endif

// ---- Streams: loops take a cache line of each at a time, and ask for it ahead of its use, each
// stream at a distance of its own: at equal distances all of them would cross a page in the same
// turn.

inline constexpr size_t kLine = 16;    // floats in a cache line
inline constexpr size_t kAhead = 512;  // bytes; past the end of an array this asks for nothing
inline constexpr size_t kStagger = 640;

static inline __attribute__((always_inline)) void ask_for(const void* stream, size_t number) {
  __builtin_prefetch(static_cast<const char*>(stream) + kAhead + kStagger * number, 0, 2);
}

// A line in vectors of the language, as wide as the instruction set's (kVectorBytes): compilers
// turn an inner loop over ranks into scalar additions, and one over an array of vectors into stores
// and loads, so vectors are counted by templates.

typedef float Vector __attribute__((vector_size(kVectorBytes)));
typedef float VectorInMemory __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
typedef int32_t VectorOfBits __attribute__((vector_size(kVectorBytes)));

inline constexpr size_t kWidth = kVectorBytes / sizeof(float);
inline constexpr size_t kVectors = kLine / kWidth;

struct Line {
  Vector part[kVectors];
};

inline constexpr int32_t kMagnitude = 0x7FFFFFFF;
inline constexpr int32_t kInfinityBits = 0x7F800000;

template <size_t v = 0>
static inline __attribute__((always_inline)) void load(Line& line, const float* from) {
  line.part[v] = *reinterpret_cast<const VectorInMemory*>(from + v * kWidth);
  if constexpr (v + 1 < kVectors) load<v + 1>(line, from);
}

template <size_t v = 0>
static inline __attribute__((always_inline)) void add(Line& line, const float* from) {
  line.part[v] = line.part[v] + *reinterpret_cast<const VectorInMemory*>(from + v * kWidth);
  if constexpr (v + 1 < kVectors) add<v + 1>(line, from);
}

template <size_t v = 0>
static inline __attribute__((always_inline)) void store(float* to, const Line& line) {
  *reinterpret_cast<VectorInMemory*>(to + v * kWidth) = line.part[v];
  if constexpr (v + 1 < kVectors) store<v + 1>(to, line);
}

/// The sum of a line in rank order. It may be stored over any input.
static inline __attribute__((always_inline)) void sum_line(Line& sum, const float* first,
                                                           const float* const* others,
                                                           int other_count, size_t i) {
  ask_for(first + i, 0);
  load(sum, first + i);
  for (int r = 0; r < other_count; ++r) {
    ask_for(others[r] + i, static_cast<size_t>(r + 1) % 8);
    add(sum, others[r] + i);
  }
}

static inline __attribute__((always_inline)) int32_t bits_of(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline __attribute__((always_inline)) uint32_t is_nonfinite(float value) {
  return (bits_of(value) & kInfinityBits) == kInfinityBits;
}

// ---- Reductions: one loop sums a piece over ranks, counts, and takes its part of a norm.

// Norms in fp64: element i of a piece goes to lane i % 8; lanes are combined at the end. A piece's
// last line is filled up with zeros, which change no lane.

struct NoNorm {
  template <size_t v>
  inline __attribute__((always_inline)) void add(const Vector&) {}
  double value() const { return 0; }
};

typedef float HalfVector __attribute__((vector_size(kVectorBytes / 2)));
typedef double WideVector __attribute__((vector_size(kVectorBytes)));

/// The lower (0) or upper half of a vector in fp64.
template <int half, class AnyVector>
static inline __attribute__((always_inline)) void widen(WideVector& out, const AnyVector& in) {
  constexpr int first = half * static_cast<int>(kWidth) / 2;
  HalfVector part;
  if constexpr (kWidth == 4) {
    part = __builtin_shufflevector(in, in, first, first + 1);
  } else if constexpr (kWidth == 8) {
    part = __builtin_shufflevector(in, in, first, first + 1, first + 2, first + 3);
  } else {
    part = __builtin_shufflevector(in, in, first, first + 1, first + 2, first + 3, first + 4,
                                   first + 5, first + 6, first + 7);
  }
  out = __builtin_convertvector(part, WideVector);
}

template <bool squares>
struct LanesNorm {
  static constexpr size_t kLanes = 8;
  static constexpr size_t kLanesInOne = kVectorBytes / sizeof(double);
  static constexpr size_t kWides = kLanes / kLanesInOne;

  template <size_t v>
  inline __attribute__((always_inline)) void add(const Vector& values) {
    add_half<v, 0>(values);
    add_half<v, 1>(values);
  }
  template <size_t v, int half>
  inline __attribute__((always_inline)) void add_half(const Vector& values) {
    WideVector& lane = lanes[(2 * v + half) % kWides];
    WideVector wide;
    if constexpr (squares) {
      widen<half>(wide, values);
      lane = lane + wide * wide;
    } else {
      widen<half>(wide, (Vector)((VectorOfBits)values & kMagnitude));
      lane = lane + wide;
    }
  }
  double lane(size_t k) const { return lanes[k / kLanesInOne][k % kLanesInOne]; }
  double value() const {
    return ((lane(0) + lane(4)) + (lane(2) + lane(6))) +
           ((lane(1) + lane(5)) + (lane(3) + lane(7)));
  }

  WideVector lanes[kWides] = {};
};

// Without their sign, floats order like their bits, and NaN lies above infinity: an integer maximum
// is exact and propagates NaN.
struct LargestNorm {
  template <size_t v>
  inline __attribute__((always_inline)) void add(const Vector& values) {
    const VectorOfBits bits = (VectorOfBits)values & kMagnitude;
    largest = bits > largest ? bits : largest;
  }
  double value() const {
    int32_t bits = 0;
    for (size_t k = 0; k < kWidth; ++k) bits = largest[k] > bits ? largest[k] : bits;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }

  VectorOfBits largest = {};
};

template <class Norm>
struct LineReducer {
  template <size_t v = 0>
  inline __attribute__((always_inline)) void add(const Line& sum) {
    const VectorOfBits bits = (VectorOfBits)sum.part[v] & kInfinityBits;
    nonfinite = nonfinite - (bits == kInfinityBits);  // true is -1
    norm.template add<v>(sum.part[v]);
    if constexpr (v + 1 < kVectors) add<v + 1>(sum);
  }
  Reduction result() const {
    uint64_t total = 0;
    for (size_t k = 0; k < kWidth; ++k) total += static_cast<uint32_t>(nonfinite[k]);
    return {norm.value(), total};
  }

  Norm norm;
  VectorOfBits nonfinite = {};  // a piece is far shorter than 2^31 lines
};

template <class Norm>
static Reduction reduce(float* out, const float* const* in, int ranks, size_t count) {
  LineReducer<Norm> reducer;
  const bool stores = ranks > 1 || out != in[0];
  Line sum;
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    sum_line(sum, in[0], in + 1, ranks - 1, i);
    reducer.add(sum);
    if (stores) store(out + i, sum);
  }
  if (i < count) {
    const size_t bytes = (count - i) * sizeof(float);
    float last[kLine] = {}, other[kLine] = {};
    __builtin_memcpy(last, in[0] + i, bytes);
    load(sum, last);
    for (int r = 1; r < ranks; ++r) {
      __builtin_memcpy(other, in[r] + i, bytes);
      add(sum, other);
    }
    reducer.add(sum);
    store(last, sum);
    if (stores) __builtin_memcpy(out + i, last, bytes);
  }
  return reducer.result();
}
