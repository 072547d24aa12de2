// SPDX-License-Identifier: Apache-2.0
// What loops over elements are made of: streams and cache lines. These files are included once by
// each instruction set's file, inside that file's namespace and its target region, so nothing is
// included from here: a standard header's inline function compiled there would serve the whole
// program. Plain loops in the order of the contract; compilers vectorize them.

#ifdef __FAST_MATH__
#error "libzero's kernels promise bits: compile them without -ffast-math"
#endif

// gcc unrolls the short loops over a line before it vectorizes, and then does not.
#if defined(__clang__)
#define ZERO_ROLLED
#else
#define ZERO_ROLLED _Pragma("GCC unroll 1")
#endif

// ---- Streams: loops take a cache line of each at a time, and ask for it ahead of its use, each
// stream at a distance of its own: at equal distances all of them would cross a page in the same
// turn.

inline constexpr size_t kAhead = 512;  // bytes; past the end of an array this asks for nothing
inline constexpr size_t kStagger = 640;

static inline __attribute__((always_inline)) void ask_for(const void* stream, size_t number) {
  __builtin_prefetch(static_cast<const char*>(stream) + kAhead + kStagger * number, 0, 2);
}

// ---- A line of sums in vectors of the language, as wide as the instruction set's (kVectorBytes):
// compilers turn an inner loop over ranks into scalar additions, and one over an array of vectors
// into stores and loads, so vectors are counted by templates.

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

/// The words of floating-point numbers, signed.
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

/// The sum of a line in rank order. It may be stored over any input. Arrays of any type hold
/// elements of type From; narrow_types.h loads a line from another type than its own.
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
