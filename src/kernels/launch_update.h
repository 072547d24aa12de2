// SPDX-License-Identifier: Apache-2.0
// Does the work of one thread in launch::Update.
#pragma once

#include "kernels/launch_sums.h"
#include "kernels/stochastic.h"
#include "rules/list.h"

namespace zero::launch {

/// Loads the values to update: the fp32 master weights if there are any. If not, loads the
/// parameter, and its remainder if it has one.
template <class Real>
ZERO_ELEMENT void load_values(Bits& values, Bits& remainders, const Format& format,
                              const RunRow& run, const Group& group) {
  if (format.master == Master::full) {
    load_words<kGroup<Real>, uint32_t, Use::once>(values, run.kept, group);
    return;
  }
  if (format.param == DType::bf16 || format.param == DType::f16) {
    load_words<kGroup<Real>, uint16_t, Use::soon>(values, run.param, group);
  } else {
    load_words<kGroup<Real>, WordOf<Real>, Use::soon>(values, run.param, group);
  }
  if (format.master == Master::remainder) {
    load_words<kGroup<Real>, uint16_t, Use::once>(remainders, run.kept, group);
    remainders = packed(remainders, group.whole);  // waits unless whole, to save registers
  }
}

template <class Real>
ZERO_ELEMENT void read_values(Real* values, const Bits& bits, const Bits& remainders,
                              const Format& format, const Group& group) {
  if (format.master == Master::remainder) {
    const Bits halves = packed(bits, group.whole);
    for (int j = 0; j < kGroup<Real>; j++)
      values[j] = joined(word_at<uint16_t>(halves, j), word_at<uint16_t>(remainders, j));
  } else {
    read_group(values, bits, format.master == Master::full ? DType::f32 : format.param, group);
  }
}

/// Makes the bits of parameters from fp32 values that the parameters cannot hold exactly.
template <int n>
ZERO_ELEMENT void narrow_values(Bits& params, Bits& remainders, const float* values,
                                const Format& format) {
  for (int j = 0; j < n; j++) {
    if (format.master == Master::remainder) {
      uint16_t param, remainder;
      split(param, remainder, values[j]);
      set_word(params, j, param);
      set_word(remainders, j, remainder);
    } else if (format.param == DType::bf16 || format.param == DType::f16) {
      set_word(params, j, narrowed(values[j], format.param));
    } else {
      set_word(params, j, word_of(rounded(values[j], format.share)));
    }
  }
}

/// Stores the parameters to every target, and the master weights or remainders beside them.
template <class Real>
ZERO_ELEMENT void store_values(const Real* values, const Update& launch, const RunRow& run,
                               const Group& group) {
  constexpr int n = kGroup<Real>;
  const Format& format = launch.format;
  Bits params = {};
  if constexpr (sizeof(Real) == sizeof(float)) {
    if (format.master != Master::param) {
      Bits kept = {};
      narrow_values<n>(params, kept, values, format);
      if (format.master == Master::remainder) {
        store_words<n, uint16_t, Use::once>(run.kept, kept, group);
      } else if (format.master == Master::full) {
        for (int j = 0; j < n; j++) set_word(kept, j, word_of(values[j]));
        store_words<n, uint32_t, Use::once>(run.kept, kept, group);
      }
    }
  }
  if (format.master == Master::param) {
    for (int j = 0; j < n; j++) set_word(params, j, word_of(values[j]));
  }
  const auto store = [&](std::byte* to) {
    if (sizeof(Real) == sizeof(float) &&
        (format.param == DType::bf16 || format.param == DType::f16)) {
      store_words<n, uint16_t, Use::soon>(to, params, group);
    } else {
      store_words<n, WordOf<Real>, Use::soon>(to, params, group);
    }
  };
  store(run.param);
  std::byte* const* const targets =
      launch.targets + static_cast<size_t>(run.pointers) * launch.targets_width;
  for (uint32_t i = 0; i < launch.targets_width && targets[i] != nullptr; i++) store(targets[i]);
}

template <class Pointer>
ZERO_ELEMENT uint64_t address(Pointer* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

/// Returns true if all arrays of a run, and so its tiles, begin at addresses divisible by 16.
template <class Of, uint32_t together>
ZERO_ELEMENT bool is_aligned(const Update& launch, const RunRow& run, const Summing<together>& how,
                             unsigned slots) {
  uint64_t all = address(run.param) | address(run.kept);
  for (int slot = 0; slot < kSlotsOf<Of>; slot++) {
    if (slots >> slot & 1) all |= address(run.slots[slot]);
  }
  for (const std::byte* const source : how.first) all |= address(source);
  for (uint32_t i = together; i < how.width; i++) all |= address(how.sources[i]);
  const size_t first = static_cast<size_t>(run.pointers) * launch.targets_width;
  for (uint32_t i = 0; i < launch.targets_width; i++) all |= address(launch.targets[first + i]);
  return all % 16 == 0;
}

/// Everything that a thread reads of a group.
template <class Of, uint32_t together>
struct Asked {
  Bits sources[together], param = {}, remainder = {}, slots[kSlotsOf<Of>] = {};
};

template <class Real, SlotFormat format>
using SlotWord = std::conditional_t<format == SlotFormat::bf16, uint16_t, WordOf<Real>>;

/// Issues all loads before it waits for any of them.
template <class Real, SlotFormat format, class Of, uint32_t together>
ZERO_ELEMENT void ask(Asked<Of, together>& asked, const Update& launch, const RunRow& run,
                      const Summing<together>& how, unsigned slots, const Group& group) {
  load_values<Real>(asked.param, asked.remainder, launch.format, run, group);
  for (int s = 0; s < kSlotsOf<Of>; s++) {
    if (slots >> s & 1)
      load_words<kGroup<Real>, SlotWord<Real, format>, Use::once>(asked.slots[s], run.slots[s],
                                                                  group);
  }
  load_sources<Real>(asked.sources, how.first, how, group);
}

template <class Real, SlotFormat format>
ZERO_ELEMENT Real slot_at(const Bits& bits, int j) {
  if constexpr (format == SlotFormat::bf16)
    return Bf16{word_at<uint16_t>(bits, j)}.value();
  else
    return real_of<Real>(word_at<WordOf<Real>>(bits, j));
}

/// Sets element j of a group of slots. `position` is its position in the random bits.
template <SlotFormat format, class Real>
ZERO_ELEMENT void set_slot(Bits& bits, int j, Real value, uint32_t key, uint32_t position) {
  if constexpr (format == SlotFormat::bf16)
    set_word(bits, j, rounded_at_random(value, key, position));
  else
    set_word(bits, j, word_of(value));
}

/// Updates a group and returns how many of its sums are not finite.
template <class Of, class Real, SlotFormat format, uint32_t together>
ZERO_ELEMENT uint32_t update_group(const Update& launch, const RunRow& run,
                                   const Summing<together>& how,
                                   const RoundedScalars<Real>& scalars, const bool* flag,
                                   uint32_t key, const Group& group) {
  constexpr int n = kGroup<Real>;
  const unsigned used = Of::used(flag);
  Asked<Of, together> asked;
  if (group.whole) {  // a separate copy of the code, with adjacent loads
    ask<Real, format>(asked, launch, run, how, used, {group.first, 1, n, true});
  } else {
    ask<Real, format>(asked, launch, run, how, used,
                      {group.first, group.stride, group.count, false});
  }

  Real sum[n], values[n];
  read_values(values, asked.param, asked.remainder, launch.format, group);
  sum_group(sum, asked.sources, how, group);
  if constexpr (format == SlotFormat::bf16) {
    for (Bits& slot : asked.slots) slot = packed(slot, group.whole);
  }
  uint32_t found = 0;
  for (int j = 0; j < n; j++) {
    found += is_nonfinite(sum[j]);  // missing elements are 0
    Real slot[kSlotsOf<Of>];
    for (int s = 0; s < kSlotsOf<Of>; s++) slot[s] = slot_at<Real, format>(asked.slots[s], j);
    Of::update(values[j], sum[j] * scalars.factor, slot, scalars.value, flag);
    const uint32_t position = static_cast<uint32_t>(run.random_at) +
                              static_cast<uint32_t>(group.first) +
                              static_cast<uint32_t>(j) * static_cast<uint32_t>(group.stride);
    for (int s = 0; s < kSlotsOf<Of>; s++)
      set_slot<format>(asked.slots[s], j, slot[s], key_of_slot(key, s), position);
  }

  store_values(values, launch, run, group);
  for (int s = 0; s < kSlotsOf<Of>; s++) {
    if (used >> s & 1)
      store_words<n, SlotWord<Real, format>, Use::once>(run.slots[s], asked.slots[s], group);
  }
  return found;
}

/// Calls body(Real, format) with constants for the arithmetic and the slots of an update.
template <class Body>
void with_arithmetic(const Format& of, const Body& body) {
  if (of.sum == DType::f64)
    body(double{}, std::integral_constant<SlotFormat, SlotFormat::full>());
  else if (of.slots == SlotFormat::bf16)
    body(float{}, std::integral_constant<SlotFormat, SlotFormat::bf16>());
  else
    body(float{}, std::integral_constant<SlotFormat, SlotFormat::full>());
}

/// Updates one thread's part of a tile, and adds to `found` how many of its sums are not finite.
/// That takes one register; a return value would take two.
template <class Of, class Real, SlotFormat format>
ZERO_HOST_DEVICE inline void update_tile(const Update& launch, uint32_t number, uint32_t thread,
                                         uint32_t threads, uint32_t& found) {
  const Tile tile = launch.tiles[number];
  // These are copies, because a store might change the originals. They would be read again for each
  // group, and a device waits for them as it waits for data.
  const RunRow run = launch.runs[tile.of];
  const Scalars shared = launch.scalars[run.cls];
  const RoundedScalars<Real> scalars(shared);
  auto how = summing<kTogether<Real>>(launch.format, launch.width, launch.sources, run.pointers);
  if (launch.reduced) {
    how.from = launch.format.sum;
    how.rounded = DType::none;
  }
  const uint32_t key = rounding_key(shared.step);
  const bool aligned = is_aligned<Of>(launch, run, how, Of::used(shared.flag));
  for_each_group<Real>(tile.number, run.count, aligned, thread, threads, [&](const Group& group) {
    found += update_group<Of, Real, format>(launch, run, how, scalars, shared.flag, key, group);
  });
}

}  // namespace zero::launch
