// SPDX-License-Identifier: Apache-2.0
// Does the work of one thread in launch::Moves and in launch::Clamp.
#pragma once

#include "kernels/clamp.h"
#include "kernels/launch_reduce.h"
#include "kernels/launch_state.h"

namespace zero::launch {

/// Copies a group's bits to elements of the same size.
template <class Real, class Word>
ZERO_ELEMENT void copy_group(const Move& move, const Group& group) {
  Bits bits = {};
  if (move.from != nullptr) load_words<kGroup<Real>, Word, Use::soon>(bits, move.from, group);
  if constexpr (sizeof(Word) == 2) bits = packed(bits, group.whole);
  store_words<kGroup<Real>, Word, Use::soon>(move.to, bits, group);
}

/// Converts a group through fp32, even between fp64 and another type.
ZERO_ELEMENT void convert_group(const Moves& launch, const Move& move, const Group& group) {
  constexpr int n = kGroup<float>;
  Bits bits = {};
  float values[n];
  const float inverse = 1 / launch.divisor;
  if (move.from != nullptr) {
    with_word_of(launch.from, [&](auto word) {
      load_group<float, decltype(word), Use::soon>(bits, move.from, group);
    });
  }
  read_group(values, bits, launch.from, group);
  for (int j = 0; j < n; j++) {
    if (launch.divisor != 1) values[j] = values[j] * inverse;
    if (launch.rounded != DType::none) values[j] = rounded(values[j], launch.rounded);
  }
  if (launch.to == DType::f64) {
    for (int j = 0; j < n; j++) {
      if (j >= group.count) continue;
      const auto at = static_cast<int64_t>(sizeof(double)) * (group.first + j * group.stride);
      store_word<uint64_t, Use::soon>(move.to + at, word_of(static_cast<double>(values[j])));
    }
    return;
  }
  for (int j = 0; j < n; j++) {
    if (launch.to == DType::f32) {
      set_word(bits, j, word_of(values[j]));
    } else {
      set_word(bits, j, narrowed(values[j], launch.to));
    }
  }
  if (launch.to == DType::f32) {
    store_words<n, uint32_t, Use::soon>(move.to, bits, group);
  } else {
    store_words<n, uint16_t, Use::soon>(move.to, bits, group);
  }
}

/// Moves one thread's part of a tile.
ZERO_HOST_DEVICE inline void move_tile(const Moves& launch, uint32_t number, uint32_t thread,
                                       uint32_t threads) {
  const Tile tile = launch.tiles[number];
  const Move& move = launch.moves[tile.of];
  const bool aligned =
      (reinterpret_cast<uint64_t>(move.from) | reinterpret_cast<uint64_t>(move.to)) % 16 == 0;
  const bool same =
      launch.from == launch.to && launch.rounded == DType::none && launch.divisor == 1;
  if (same && launch.from == DType::f64) {
    for_each_group<double>(tile.number, move.count, aligned, thread, threads,
                           [&](const Group& group) { copy_group<double, uint64_t>(move, group); });
    return;
  }
  for_each_group<float>(tile.number, move.count, aligned, thread, threads, [&](const Group& group) {
    if (!same) {
      convert_group(launch, move, group);
    } else if (launch.from == DType::f32) {
      copy_group<float, uint32_t>(move, group);
    } else {
      copy_group<float, uint16_t>(move, group);
    }
  });
}

/// Clamps elements lane, lane + 8, ... of a piece.
template <class Real>
ZERO_HOST_DEVICE inline void clamp_lane(const Clamp& launch, uint32_t number, uint32_t lane) {
  constexpr int n = kGroup<Real>;
  const PieceRow piece = launch.pieces[number];
  std::byte* const sums = launch.sums[piece.of].out;
  const Real factor = static_cast<Real>(launch.state->factor);
  const Real limit = static_cast<Real>(launch.limit);
  const int64_t end = piece.first + piece.count;
  for (int64_t i = piece.first + lane; i < end; i += n * kLanes) {
    const int64_t there = (end - i + kLanes - 1) / kLanes;
    const Group group = {i, kLanes, static_cast<int32_t>(there < n ? there : n), false};
    Bits bits = {};
    load_words<n, WordOf<Real>, Use::soon>(bits, sums, group);
    for (int j = 0; j < n; j++) {
      const Real sum = real_of<Real>(word_at<WordOf<Real>>(bits, j));
      set_word(bits, j, word_of(clamped(sum, factor, limit)));
    }
    store_words<n, WordOf<Real>, Use::soon>(sums, bits, group);
  }
}

}  // namespace zero::launch
