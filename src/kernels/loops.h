// SPDX-License-Identifier: Apache-2.0
// Defines the parts of loops over elements: streams and cache lines. The file of each instruction
// set includes these files once, inside its namespace and its target region. They include no
// standard header, because an inline function compiled there would serve the whole program. Loops
// are plain, in the order of the contract; compilers vectorize them.

#ifdef __FAST_MATH__
#error "libzero's kernels promise bits: compile them without -ffast-math"
#endif

// Without this, gcc unrolls the short loops over a line first, and then does not vectorize them.
#if defined(__clang__)
#define ZERO_ROLLED
#else
#define ZERO_ROLLED _Pragma("GCC unroll 1")
#endif

// ---- Streams. Loops take one cache line of each stream at a time, and prefetch it. Each stream
// has its own distance, because at equal distances all would cross a page at the same time.

inline constexpr size_t kAhead = 512;  // in bytes; a prefetch past the end of an array is harmless
inline constexpr size_t kStagger = 640;

static inline __attribute__((always_inline)) void ask_for(const void* stream, size_t number) {
  __builtin_prefetch(static_cast<const char*>(stream) + kAhead + kStagger * number, 0, 2);
}

// ---- A line of sums in the compiler's vectors, as wide as those of the instruction set
// (kVectorBytes). Templates count the vectors, because compilers turn an inner loop over ranks into
// scalar additions, and one over an array of vectors into stores and loads.

inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kVectors = kLineBytes / kVectorBytes;

template <class Real>
inline constexpr size_t kLine = kLineBytes / sizeof(Real);  // elements
template <class Real>
inline constexpr size_t kWidth = kVectorBytes / sizeof(Real);

template <class Element, size_t n>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(n * sizeof(Element))));
  typedef Element InMemory
      __attribute__((vector_size(n * sizeof(Element)), aligned(alignof(Element)), may_alias));
};
template <class Element, size_t n>
using Vector = typename VectorOf<Element, n>::Type;
template <class Element, size_t n>
using InMemory = typename VectorOf<Element, n>::InMemory;

/// The words of floating-point numbers, as signed integers.
template <class Real>
using SignedWord = std::make_signed_t<WordOf<Real>>;
template <class Real>
using Bits = Vector<SignedWord<Real>, kWidth<Real>>;

template <size_t... number>
using Numbers = std::index_sequence<number...>;

template <class Real>
struct Line {
  Vector<Real, kWidth<Real>> part[kVectors];
};

template <size_t v = 0, class Real>
static inline __attribute__((always_inline)) void load_parts(Line<Real>& line, const Real* from) {
  line.part[v] = *reinterpret_cast<const InMemory<Real, kWidth<Real>>*>(from + v * kWidth<Real>);
  if constexpr (v + 1 < kVectors) load_parts<v + 1>(line, from);
}

template <class Real>
static inline __attribute__((always_inline)) void load(Line<Real>& line, const Real* from) {
  load_parts(line, from);
}

template <size_t v = 0, class Real>
static inline __attribute__((always_inline)) void add(Line<Real>& line, const Line<Real>& other) {
  line.part[v] = line.part[v] + other.part[v];
  if constexpr (v + 1 < kVectors) add<v + 1>(line, other);
}

template <size_t v = 0, class Real>
static inline __attribute__((always_inline)) void store(Real* to, const Line<Real>& line) {
  *reinterpret_cast<InMemory<Real, kWidth<Real>>*>(to + v * kWidth<Real>) = line.part[v];
  if constexpr (v + 1 < kVectors) store<v + 1>(to, line);
}

/// Sums a line in rank order. The sum may be stored over any input. The arrays `others` hold
/// elements of type From, whatever their static type. narrow_types.h loads a line of another type.
template <class Real, class From, class Any>
static inline __attribute__((always_inline)) void sum_line(Line<Real>& sum, const From* first,
                                                           const Any* const* others,
                                                           int other_count, size_t i) {
  ask_for(first + i, 0);
  load(sum, first + i);
  for (int r = 0; r < other_count; ++r) {
    const From* const from = static_cast<const From*>(others[r]) + i;
    ask_for(from, static_cast<size_t>(r + 1) % 8);
    Line<Real> other;
    load(other, from);
    add(sum, other);
  }
}

#include "kernels/narrow_types.h"
#include "kernels/reductions.h"
#include "kernels/updates.h"
