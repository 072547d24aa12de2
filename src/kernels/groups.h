// SPDX-License-Identifier: Apache-2.0
// Moves groups of elements between memory and the registers of one thread of a launch. Groups are
// loaded as bits and become numbers later, so that a thread can issue all its loads before it waits
// for any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/bits.h"
#include "kernels/launches.h"
#include "kernels/narrow_element.h"

namespace zero::launch {

/// The number of elements that a thread works on at a time.
template <class Real>
inline constexpr int kGroup = 32 / static_cast<int>(sizeof(Real));

/// `count` elements of every array: first, first + stride, ... If `whole`, they are kGroup
/// consecutive elements at an address divisible by 16 (by 8 if the whole group takes 8 bytes).
struct Group {
  int64_t first;
  int64_t stride;
  int32_t count;
  bool whole;
};

/// Calls work(group) for each group of a tile that one thread works on. If arrays are `aligned`, a
/// group has consecutive elements. Otherwise consecutive threads take consecutive elements.
template <class Real, class Work>
ZERO_ELEMENT void for_each_group(uint32_t tile, int64_t count, bool aligned, uint32_t thread,
                                 uint32_t threads, const Work& work) {
  constexpr int64_t n = kGroup<Real>;
  const int64_t begin = tile * kTileElements;
  const int64_t end = count - begin < kTileElements ? count : begin + kTileElements;
  for (int64_t i = begin + (aligned ? n : 1) * thread; i < end; i += n * threads) {
    const int64_t there = aligned ? end - i : (end - i + threads - 1) / threads;
    const bool full = there >= n;
    work(Group{i, aligned ? 1 : int64_t{threads}, static_cast<int32_t>(full ? n : there),
               aligned && full});
  }
}

/// How memory is used: `once` per step, so that caches need not keep it, or again `soon`. On
/// devices it is global memory.
enum class Use { once, soon };

/// The bits of a group. Element j begins at byte j * size. 16-bit elements that were loaded one by
/// one take a word each until packed() joins them, which waits for the loads.
struct alignas(16) Bits {
  uint32_t words[8];
};

#ifdef __CUDACC__
using Quad = uint4;
#else
struct alignas(16) Quad {
  uint32_t x, y, z, w;
};
#endif

/// Traps if the address is not a multiple of the word's size, because a device would fault there.
template <class Word>
ZERO_ELEMENT void check_address(const std::byte* place) {
  if (reinterpret_cast<uint64_t>(place) % sizeof(Word) != 0) __builtin_trap();
}

template <class Word, Use use>
ZERO_ELEMENT Word load_word(const std::byte* from) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(from));
  const auto* const place = reinterpret_cast<const Word*>(from);
  return use == Use::once ? __ldcs(place) : *place;
#else
  check_address<Word>(from);
  Word word;
  __builtin_memcpy(&word, from, sizeof word);
  return word;
#endif
}

template <class Word, Use use>
ZERO_ELEMENT void store_word(std::byte* to, Word word) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(to));
  auto* const place = reinterpret_cast<Word*>(to);
  if constexpr (use == Use::once) {
    __stcs(place, word);
  } else {
    *place = word;
  }
#else
  check_address<Word>(to);
  __builtin_memcpy(to, &word, sizeof word);
#endif
}

// ---- Words of bits. With constant places these are moves between registers.

template <class Word>
ZERO_ELEMENT Word word_at(const Bits& bits, int place) {
  if constexpr (sizeof(Word) == 2) {
    return static_cast<Word>(bits.words[place / 2] >> (place % 2 * 16));
  } else if constexpr (sizeof(Word) == 4) {
    return bits.words[place];
  } else if constexpr (sizeof(Word) == 8) {
    return bits.words[2 * place] | Word{bits.words[2 * place + 1]} << 32;
  } else {
    const uint32_t* const words = bits.words + 4 * place;
    return {words[0], words[1], words[2], words[3]};
  }
}

template <class Word>
ZERO_ELEMENT void set_word(Bits& bits, int place, Word word) {
  if constexpr (sizeof(Word) == 2) {
    const int shift = place % 2 * 16;
    const uint32_t other = bits.words[place / 2] & ~(0xFFFFu << shift);
    bits.words[place / 2] = other | static_cast<uint32_t>(word) << shift;
  } else if constexpr (sizeof(Word) == 4) {
    bits.words[place] = word;
  } else if constexpr (sizeof(Word) == 8) {
    bits.words[2 * place] = static_cast<uint32_t>(word);
    bits.words[2 * place + 1] = static_cast<uint32_t>(word >> 32);
  } else {
    uint32_t* const words = bits.words + 4 * place;
    words[0] = word.x, words[1] = word.y, words[2] = word.z, words[3] = word.w;
  }
}

// ---- Groups of n elements of the size of Word

/// Stores a loaded word as element `place`.
template <class Word>
ZERO_ELEMENT void put_word(Bits& bits, int place, Word word) {
  if constexpr (sizeof(Word) == 2) {
    bits.words[place] = word;
  } else {
    set_word(bits, place, word);
  }
}

/// Returns 16-bit elements in their layout in memory.
ZERO_ELEMENT Bits packed(const Bits& bits, bool whole) {
  if (whole) return bits;
  Bits halves;
  for (int i = 0; i < 4; i++) halves.words[i] = bits.words[2 * i] | bits.words[2 * i + 1] << 16;
  return halves;
}

template <int n, class Word, Use use>
ZERO_ELEMENT void load_words(Bits& bits, const std::byte* from, const Group& group) {
  constexpr int bytes = n * static_cast<int>(sizeof(Word));
  static_assert(bytes <= static_cast<int>(sizeof(Bits)));
  const std::byte* const first = from + group.first * static_cast<int64_t>(sizeof(Word));
  if (group.whole) {
    using Wide = std::conditional_t<bytes % 16 == 0, Quad, uint64_t>;
    for (int i = 0; i < bytes / static_cast<int>(sizeof(Wide)); i++)
      set_word(bits, i, load_word<Wide, use>(first + i * sizeof(Wide)));
    return;
  }
  const int64_t step = group.stride * static_cast<int64_t>(sizeof(Word));
  const std::byte* place = first;  // first + j * step would be kept in registers for every j
  for (int j = 0; j < n; j++) {
    if (j < group.count) put_word(bits, j, load_word<Word, use>(place));
    place += step;
  }
}

template <int n, class Word, Use use>
ZERO_ELEMENT void store_words(std::byte* to, const Bits& bits, const Group& group) {
  constexpr int bytes = n * static_cast<int>(sizeof(Word));
  std::byte* const first = to + group.first * static_cast<int64_t>(sizeof(Word));
  if (group.whole) {
    using Wide = std::conditional_t<bytes % 16 == 0, Quad, uint64_t>;
    for (int i = 0; i < bytes / static_cast<int>(sizeof(Wide)); i++)
      store_word<Wide, use>(first + i * sizeof(Wide), word_at<Wide>(bits, i));
    return;
  }
  const int64_t step = group.stride * static_cast<int64_t>(sizeof(Word));
  std::byte* place = first;
  for (int j = 0; j < n; j++) {
    if (j < group.count) store_word<Word, use>(place, word_at<Word>(bits, j));
    place += step;
  }
}

// ---- Groups of any floating type

/// Loads doubles and rounds them to float.
template <Use use>
ZERO_ELEMENT void load_rounded(Bits& bits, const std::byte* from, const Group& group) {
  constexpr int n = kGroup<float>;
  const std::byte* place = from + group.first * static_cast<int64_t>(sizeof(double));
  const int64_t step = group.stride * static_cast<int64_t>(sizeof(double));
  for (int j = 0; j < n; j++) {
    if (j < group.count) {
      const double wide = real_of<double>(load_word<uint64_t, use>(place));
      bits.words[j] = word_of(static_cast<float>(wide));
    }
    place += step;
  }
}

/// Calls body(word), where `word` has the size of `type`.
template <class Body>
ZERO_ELEMENT void with_word_of(DType type, const Body& body) {
  if (type == DType::f32) {
    body(uint32_t{});
  } else if (type == DType::f64) {
    body(uint64_t{});
  } else {
    body(uint16_t{});
  }
}

/// Loads a group of elements of Word's size for arithmetic in Real. Elements wider than Real are
/// rounded here.
template <class Real, class Word, Use use>
ZERO_ELEMENT void load_group(Bits& bits, const std::byte* from, const Group& group) {
  if constexpr (sizeof(Word) > sizeof(Real)) {
    load_rounded<use>(bits, from, group);
  } else {
    load_words<kGroup<Real>, Word, use>(bits, from, group);
  }
}

// ---- 16-bit numbers: `type` is bf16 or f16

ZERO_ELEMENT uint16_t narrowed(float value, DType type) {
  return type == DType::bf16 ? Bf16::of(value).bits : F16::of(value).bits;
}
ZERO_ELEMENT float widened(uint16_t bits, DType type) {
  return type == DType::bf16 ? Bf16{bits}.value() : F16{bits}.value();
}
ZERO_ELEMENT float rounded(float value, DType type) {
  return type == DType::bf16 ? Bf16::of(value).value() : F16::of(value).value();
}

// ---- Groups of numbers

/// Writes the numbers of a loaded group to `values`.
template <class Real>
ZERO_ELEMENT void read_group(Real* values, const Bits& bits, DType type, const Group& group) {
  constexpr int n = kGroup<Real>;
  if (type == DType::bf16 || type == DType::f16) {
    const Bits halves = packed(bits, group.whole);
    for (int j = 0; j < n; j++)
      values[j] = static_cast<Real>(widened(word_at<uint16_t>(halves, j), type));
  } else if (type == DType::f32 || sizeof(Real) == sizeof(float)) {
    for (int j = 0; j < n; j++) values[j] = real_of<float>(word_at<uint32_t>(bits, j));
  } else {
    for (int j = 0; j < n; j++)
      values[j] = static_cast<Real>(real_of<double>(word_at<uint64_t>(bits, j)));
  }
}

}  // namespace zero::launch
