// SPDX-License-Identifier: Apache-2.0
#include "step/tiles.h"

#include <algorithm>
#include <type_traits>

#include "kernels/stochastic.h"

namespace zero {
std::vector<Scalars> prepare_classes(const Optimizer& optim, const StepMemory& memory,
                                     double factor) {
  std::vector<Scalars> scalars;
  for (const int64_t any : memory.classes) {
    const auto param = static_cast<size_t>(any);
    if (is_custom(optim.rule_of(optim.param(any)))) {
      scalars.emplace_back();  // its function computes its own
      continue;
    }
    const std::array<double, kMaxSettings> settings = optim.settings_of(param);
    scalars.push_back(optim.rule_of(optim.param(any))
                          .prepare({.settings = settings.data(),
                                    .step = optim.progress[param].step + 1,
                                    .live_slots = optim.progress[param].live_slots,
                                    .factor = factor,
                                    .product = optim.progress[param].product}));
  }
  return scalars;
}

TileGradients::TileGradients(const Pass& pass)
    : Pass(pass), in_(fused ? memory.sources.width : 1) {}

/// Returns how sources are rounded. Reduced gradients are not rounded again.
Rounding TileGradients::rounding_of(const Section& section) const {
  return fused ? rounding(optim, memory, section) : Rounding{};
}

template <class Real>
void TileGradients::take(const Section& section, Sources::Row sources, int64_t at,
                         UpdateRunOf<Real>& update) {
  const DType from = dtype(section);
  for (size_t i = 0; i < in_.size(); i++)
    in_[i] = sources[i] == nullptr ? kZeros : sources[i] + size_of(from, at);
  const Rounding rounded = rounding_of(section);
  if (from == section.sum() && !rounded.any()) {
    const auto* const reals = reinterpret_cast<const Real* const*>(in_.data());
    update.grad = reals[0];
    update.others = reals + 1;
    update.other_count = static_cast<int>(in_.size()) - 1;
    return;
  }
  if (!rounded.any()) {
    kernels().reduction(section.sum(), from, Norm::none)(
        sum_, in_.data(), static_cast<int>(in_.size()), update.count);
  } else {
    reduce_rounded(kernels(), rounded, from, Norm::none, reinterpret_cast<float*>(sum_), in_,
                   update.count, reinterpret_cast<float*>(scratch_));
  }
  update.grad = reinterpret_cast<const Real*>(sum_);
}

template void TileGradients::take(const Section&, Sources::Row, int64_t, UpdateRunOf<float>&);
template void TileGradients::take(const Section&, Sources::Row, int64_t, UpdateRunOf<double>&);

uint64_t TileGradients::nonfinite(const Section& section, int64_t begin, int64_t end) {
  Reducer reducer(kernels(), 0);
  const DType from = dtype(section);
  std::vector<const void*> part(in_.size());
  for (int64_t at = begin; at < end; at += kTile) {
    for (size_t i = 0; i < in_.size(); i++)
      part[i] = static_cast<const std::byte*>(in_[i]) + size_of(from, at);
    reducer.reduce(section.sum(), from, sum_, part, static_cast<size_t>(std::min(kTile, end - at)),
                   rounding_of(section));
  }
  return reducer.record().nonfinite;
}

template <class Real>
void TileSlots::load(UpdateRunOf<Real>& run, int64_t share) {
  for (size_t slot = 0; slot < slots_; slot++) {
    std::byte* const stored = at(slot, share);
    run.slots[slot] = reinterpret_cast<Real*>(stored);
    if constexpr (std::is_same_v<Real, float>) {
      if (stored == nullptr || !converts(optim_, section_)) continue;
      run.slots[slot] = room_[slot];
      kernels().bf16.widen(room_[slot], reinterpret_cast<const uint16_t*>(stored), run.count);
    }
  }
}

template <class Real>
void TileSlots::store(const UpdateRunOf<Real>& run, int64_t share, int64_t random_at,
                      int64_t step) const {
  if constexpr (std::is_same_v<Real, float>) {
    if (!converts(optim_, section_)) return;
    for (size_t slot = 0; slot < slots_; slot++) {
      auto* const stored = reinterpret_cast<uint16_t*>(at(slot, share));
      if (stored == nullptr) continue;
      kernels().round_at_random(stored, room_[slot], run.count,
                                key_of_slot(rounding_key(step), static_cast<int>(slot)),
                                static_cast<uint32_t>(random_at));
    }
  }
}

template void TileSlots::load(UpdateRunOf<float>&, int64_t);
template void TileSlots::load(UpdateRunOf<double>&, int64_t);
template void TileSlots::store(const UpdateRunOf<float>&, int64_t, int64_t, int64_t) const;
template void TileSlots::store(const UpdateRunOf<double>&, int64_t, int64_t, int64_t) const;

std::byte* load_master(const Optimizer& optim, const Section& section, std::byte* param,
                       std::byte* kept, std::byte* room, size_t count) {
  auto* const values = reinterpret_cast<float*>(room);
  switch (optim.master_of(section)) {
    case Master::param:
      break;
    case Master::full:
      return kept;
    case Master::remainder:
      kernels().join_remainder(values, reinterpret_cast<const uint16_t*>(param),
                               reinterpret_cast<const uint16_t*>(kept), count);
      return room;
    case Master::rounded:
      if (section.dtype == DType::f32) break;
      read_values(section.dtype, values, param, count);
      return room;
  }
  return param;
}

void store_master(const Optimizer& optim, const Section& section, std::byte* param, std::byte* kept,
                  const std::byte* master, size_t count) {
  const auto* const values = reinterpret_cast<const float*>(master);
  switch (optim.master_of(section)) {
    case Master::param:
      break;
    case Master::full:
    case Master::rounded:
      write_values(section.dtype, optim.options, param, values, count);
      break;
    case Master::remainder:
      kernels().split_remainder(reinterpret_cast<uint16_t*>(param),
                                reinterpret_cast<uint16_t*>(kept), values, count);
      break;
  }
}

}  // namespace zero
