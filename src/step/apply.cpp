// SPDX-License-Identifier: Apache-2.0
#include "step/apply.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "step/reduce.h"
#include "step/share.h"

namespace zero {
namespace {

// Where nothing is read a second time, a tile only bounds the time between two looks at the abort
// word, and ends cost a little.
constexpr int64_t kShortTile = 512;  // where values are converted, more streams share the cache
constexpr int64_t kLongTile = 32768;
constexpr int64_t kLook = 131072;  // elements

const KernelTable& kernels() { return kernel_table(best_isa()); }

/// Scalars of every class for the step about to be made.
std::vector<Scalars> prepare_classes(const Optimizer& optim, const StepMemory& memory,
                                     double factor) {
  std::vector<Scalars> scalars;
  for (const UpdateClass& cls : memory.classes) {
    const auto param = static_cast<size_t>(cls.param);
    const std::array<double, kMaxSettings> settings = optim.settings_of(param);
    scalars.push_back(optim.options.rule->prepare(
        {.settings = std::span(settings).first(optim.options.rule->settings.size()),
         .step = optim.progress[param].step + 1,
         .live_slots = optim.progress[param].live_slots,
         .factor = factor,
         .product = optim.progress[param].product}));
  }
  return scalars;
}

/// One thread's walk over its part of the runs.
class Updater {
 public:
  Updater(Call& call, const Optimizer& optim, const StepMemory& memory, const Runs& runs,
          const std::vector<Scalars>& scalars, bool fused)
      : call_(call),
        optim_(optim),
        memory_(memory),
        runs_(runs),
        scalars_(scalars),
        fused_(fused),
        in_(runs.source_width) {}

  /// Elements [begin, end) of all runs, counted in order.
  uint64_t walk(int64_t begin, int64_t end, bool reports_progress) {
    int64_t passed = 0, unlooked = 0;
    for (size_t r = 0; r < runs_.runs.size() && passed < end; r++) {
      const Run& run = runs_.runs[r];
      const int64_t first = std::max<int64_t>(0, begin - passed);
      const int64_t last = std::min(run.count, end - passed);
      const Section& section = optim_.plan.section(run.section);
      const int64_t length = tile_length(r, section);
      for (int64_t at = first; at < last; at += length) {
        const int64_t count = std::min(length, last - at);
        section.sum() == DType::f64 ? tile<double>(r, section, at, count)
                                    : tile<float>(r, section, at, count);
        unlooked += count;
        if (unlooked < kLook) continue;
        unlooked = 0;
        if (call_.comm().aborted()) return nonfinite_;
        if (reports_progress) call_.progress();
      }
      passed += run.count;
    }
    return nonfinite_;
  }

 private:
  DType source_dtype(const Section& section) const {
    return fused_ ? section.grad_dtype : section.sum();
  }

  /// Sums were rounded when they were made.
  DType rounding_of(const Section& section) const {
    return fused_ ? rounding(optim_, memory_, section) : DType::none;
  }

  int64_t tile_length(size_t r, const Section& section) const {
    const std::byte* const* sources = &runs_.sources[r * runs_.source_width];
    const bool zeros =
        std::find(sources, sources + runs_.source_width, nullptr) != sources + runs_.source_width;
    const bool copies =
        runs_.target_width > 1 && runs_.targets[r * runs_.target_width + 1] != nullptr;
    const bool rounds = rounding_of(section) != DType::none;
    const bool converts =
        rounds || section.dtype != section.sum() || source_dtype(section) != section.sum();
    if (converts) return kShortTile;
    return zeros || copies ? kTile : kLongTile;
  }

  /// Sum, update, store: elements [at, at + count) of run `r`.
  template <class Real>
  void tile(size_t r, const Section& section, int64_t at, int64_t count) {
    const Run& run = runs_.runs[r];
    UpdateRunOf<Real> update{};
    update.count = static_cast<size_t>(count);
    sum_tile(r, section, at, update);
    std::byte* const own =
        runs_.targets[r * runs_.target_width] + at * static_cast<int64_t>(size_of(section.dtype));
    std::byte* const kept = optim_.slot(kMasterSlot, run.section, run.share + at);
    update.param = load_master<Real>(section, own, kept, count);
    for (size_t slot = 0; slot < optim_.options.rule->slots.size(); slot++) {
      update.slots[slot] =
          reinterpret_cast<Real*>(optim_.slot(static_cast<int>(slot), run.section, run.share + at));
    }
    const Scalars& scalars = scalars_[static_cast<size_t>(run.cls)];
    const uint64_t found = update_kernel<Real>()(update, scalars);
    if (fused_ && found > 0) [[unlikely]] {
      nonfinite_ += run.gaps ? count_in_params(section, run.share + at, count) : found;
    }
    store_master(section, own, kept, update.param, count);
    for (size_t i = 1; i < runs_.target_width; i++) {
      std::byte* const target = runs_.targets[r * runs_.target_width + i];
      if (target == nullptr) break;
      std::memcpy(target + at * static_cast<int64_t>(size_of(section.dtype)), own,
                  update.count * size_of(section.dtype));
    }
  }

  /// The gradients of all ranks, for the update to sum; gradients of another type than the sum's
  /// are summed here.
  template <class Real>
  void sum_tile(size_t r, const Section& section, int64_t at, UpdateRunOf<Real>& update) {
    const DType from = source_dtype(section);
    for (size_t i = 0; i < in_.size(); i++) {
      const std::byte* source = runs_.sources[r * runs_.source_width + i];
      in_[i] = source == nullptr ? kZeros : source + at * static_cast<int64_t>(size_of(from));
    }
    const DType rounded = rounding_of(section);
    if (from == section.sum() && rounded == DType::none) {
      const auto* const reals = reinterpret_cast<const Real* const*>(in_.data());
      update.grad = reals[0];
      update.others = reals + 1;
      update.other_count = static_cast<int>(in_.size()) - 1;
      return;
    }
    if (rounded == DType::none) {
      kernels().reduction(section.sum(), from, Norm::none)(
          sum_, in_.data(), static_cast<int>(in_.size()), update.count);
    } else {
      reduce_rounded(kernels(), rounded, from, Norm::none, reinterpret_cast<float*>(sum_), in_,
                     update.count, reinterpret_cast<float*>(scratch_));
    }
    update.grad = reinterpret_cast<const Real*>(sum_);
  }

  /// The values to update: the parameter itself, or what is kept of its master.
  template <class Real>
  Real* load_master(const Section& section, std::byte* own, std::byte* kept, int64_t count) {
    switch (optim_.master_of(section)) {
      case Master::param:
        break;
      case Master::full:
        return reinterpret_cast<Real*>(kept);
      case Master::remainder:
        kernels().join_remainder(
            reinterpret_cast<float*>(master_), reinterpret_cast<const uint16_t*>(own),
            reinterpret_cast<const uint16_t*>(kept), static_cast<size_t>(count));
        return reinterpret_cast<Real*>(master_);
    }
    return reinterpret_cast<Real*>(own);
  }

  void store_master(const Section& section, std::byte* own, std::byte* kept, const void* updated,
                    int64_t count) const {
    const auto* const values = static_cast<const float*>(updated);
    auto* const param = reinterpret_cast<uint16_t*>(own);
    switch (optim_.master_of(section)) {
      case Master::param:
        break;
      case Master::full:
        kernels().narrow(section.dtype)(param, values, static_cast<size_t>(count));
        break;
      case Master::remainder:
        kernels().split_remainder(param, reinterpret_cast<uint16_t*>(kept), values,
                                  static_cast<size_t>(count));
        break;
    }
  }

  template <class Real>
  UpdateKernelOf<Real> update_kernel() const {
    if constexpr (std::is_same_v<Real, double>) {
      return kernels().update_wide[optim_.options.optimizer];
    } else {
      return kernels().update[optim_.options.optimizer];
    }
  }

  /// Padding between parameters may hold anything: the count of the tile in `in_` without it.
  uint64_t count_in_params(const Section& section, int64_t share, int64_t count) {
    Reducer reducer(kernels(), 0);
    const DType from = source_dtype(section);
    const DType rounded = rounding_of(section);
    std::vector<const void*> sources(in_.size());
    auto view = std::partition_point(
        memory_.views.begin(), memory_.views.end(),
        [share](const View& v) { return v.segment.share + v.segment.count <= share; });
    for (; view != memory_.views.end() && view->segment.share < share + count; ++view) {
      const int64_t begin = std::max<int64_t>(view->segment.share - share, 0);
      const int64_t end = std::min(view->segment.share + view->segment.count - share, count);
      for (int64_t at = begin; at < end; at += kTile) {
        for (size_t i = 0; i < in_.size(); i++)
          sources[i] =
              static_cast<const std::byte*>(in_[i]) + at * static_cast<int64_t>(size_of(from));
        reducer.reduce(section.sum(), from, sum_, sources,
                       static_cast<size_t>(std::min(kTile, end - at)), rounded);
      }
    }
    return reducer.record().nonfinite;
  }

  Call& call_;
  const Optimizer& optim_;
  const StepMemory& memory_;
  const Runs& runs_;
  const std::vector<Scalars>& scalars_;
  const bool fused_;
  std::vector<const void*> in_;
  uint64_t nonfinite_ = 0;
  alignas(64) std::byte sum_[kTile * sizeof(double)];
  alignas(64) std::byte scratch_[kShortTile * sizeof(float)];
  alignas(64) std::byte master_[kTile * sizeof(float)];
};

}  // namespace

uint64_t update_share(Call& call, Optimizer& optim, StepMemory& memory, double factor, bool fused) {
  const Runs& runs = fused ? memory.fused : memory.from_reduced;
  const std::vector<Scalars> scalars = prepare_classes(optim, memory, factor);
  std::vector<uint64_t> nonfinite(static_cast<size_t>(optim.pool->threads()));
  share_out(*optim.pool, runs.elements, kAlignment, [&](int thread, int64_t begin, int64_t end) {
    Updater updater(call, optim, memory, runs, scalars, fused);
    nonfinite[static_cast<size_t>(thread)] = updater.walk(begin, end, thread == 0);
  });
  const uint32_t used = optim.slots_used();
  for (const Run& run : runs.runs) {
    const Section& section = optim.plan.section(run.section);
    const bool keeps = optim.master_of(section) == Master::full;  // then the parameter is not read
    size_t bytes = runs.source_width * size_of(fused ? section.grad_dtype : section.sum()) +
                   size_of(section.dtype) * (keeps ? 1 : 2) +
                   2 * optim.slot_size(kMasterSlot, section);
    for (int slot = 0; slot < kMaxSlots; slot++) {
      if (used >> slot & 1) bytes += 2 * optim.slot_size(slot, section);
    }
    optim.counters.moved_bytes += run.count * static_cast<int64_t>(bytes);
  }
  uint64_t total = 0;
  for (const uint64_t found : nonfinite) total += found;
  return total;
}

void copy_share(const Optimizer& optim, const StepMemory& memory) {
  for (size_t v = 0; v < memory.views.size(); v++) {
    const View& view = memory.views[v];
    const size_t bytes = static_cast<size_t>(view.segment.count) *
                         size_of(optim.plan.section(view.segment.section).dtype);
    std::byte* const* targets = &memory.view_targets[v * memory.target_width];
    for (size_t i = 1; i < memory.target_width && targets[i] != nullptr; i++)
      std::memcpy(targets[i], targets[0], bytes);
  }
}

}  // namespace zero
