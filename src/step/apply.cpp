// SPDX-License-Identifier: Apache-2.0
#include "step/apply.h"

#include <algorithm>
#include <numeric>

#include "base/os.h"
#include "step/background.h"
#include "step/tiles.h"
#include "step/trust.h"

namespace zero {
namespace {

// A tile that is read once need not fit into a cache, and each tile has a small overhead, so tiles
// are long. Their length bounds the time between two checks whether the comm is aborted.
constexpr int64_t kShortTile = 512;  // for converted values, whose streams share the cache
constexpr int64_t kLongTile = 32768;
constexpr int64_t kLook = 131072;  // elements between two checks
// Elements between two progress reports to other ranks. A multiple of kAlignment, so that the parts
// of the threads are aligned.
constexpr int64_t kSlice = 262144;

/// Updates one thread's part of the runs.
class Updater : Pass {
 public:
  Updater(const Pass& pass, const Runs& runs) : Pass(pass), runs_(runs), gradients_(pass) {}

  /// Updates the run that begins with this view. Starts at the end, because the last elements were
  /// read most recently.
  void walk_back(size_t view, double ratio, bool reports_progress) {
    const auto found = std::partition_point(runs_.runs.begin(), runs_.runs.end(),
                                            [view](const Run& run) { return run.view < view; });
    const auto r = static_cast<size_t>(found - runs_.runs.begin());
    for (int64_t end = found->segment.count, begin = 0; end > 0; end = begin) {
      begin = (end - 1) / kLongTile * kLongTile;
      if (!walk(r, begin, end, ratio, reports_progress)) break;
    }
  }

  /// Updates elements [first, last) of run `r`. Returns false if the comm is aborted.
  bool walk(size_t r, int64_t first, int64_t last, double ratio, bool reports_progress) {
    const Section& section = optim.plan.section(runs_.runs[r].segment.section);
    const int64_t length = tile_length(r, section);
    for (int64_t at = first; at < last; at += length) {
      const int64_t count = std::min(length, last - at);
      section.sum() == DType::f64 ? tile<double>(r, section, at, count, ratio)
                                  : tile<float>(r, section, at, count, ratio);
      unlooked_ += count;
      if (unlooked_ < kLook) continue;
      unlooked_ = 0;
      if (optim.comm->aborted()) return false;
      if (reports_progress) call->progress();
    }
    return true;
  }

  /// Returns how many gradients were not finite so far.
  uint64_t nonfinite() const { return nonfinite_; }

 private:
  /// Returns the addresses of the gradients, or of their sum if they have been summed before.
  Sources::Row sources_of(size_t r) const {
    if (fused && !writes_directions(optim.rule_of(runs_.runs[r].segment))) return runs_.sources[r];
    return {&runs_.runs[r].reduced, 1};
  }

  int64_t tile_length(size_t r, const Section& section) const {
    const auto sources = sources_of(r);
    const auto targets = runs_.targets[r];
    if (gradients_.converts(section) || optim.master_of(section) != Master::param ||
        TileSlots::converts(optim, section))
      return kShortTile;
    const bool zeros = std::ranges::find(sources, nullptr) != sources.end();
    const bool copies = targets.size() > 1 && targets[1] != nullptr;
    return zeros || copies ? kTile : kLongTile;
  }

  /// Sums, updates and stores elements [at, at + count) of run `r`.
  template <class Real>
  void tile(size_t r, const Section& section, int64_t at, int64_t count, double ratio) {
    const Run& run = runs_.runs[r];
    const int64_t share = run.segment.share + at;
    const auto targets = runs_.targets[r];
    const size_t done = size_of(section.dtype, at);
    UpdateRunOf<Real> update{};
    update.count = static_cast<size_t>(count);
    std::byte* const own = targets[0] + done;
    std::byte* const kept = optim.slot(kMasterSlot, run.segment.section, share);
    std::byte* const master = load_master(optim, section, own, kept, master_, update.count);
    update.param = reinterpret_cast<Real*>(master);
    if (optim.image != nullptr) [[unlikely]]
      keep(section, run.segment.section, share, own, update.count);
    Scalars of_run = scalars[static_cast<size_t>(run.cls)];
    const Rule& rule = optim.rule_of(section);
    if (rule.trust != nullptr) of_run.value[rule.trust->scalar] *= ratio;
    if (writes_directions(rule)) {
      const auto* const directions = reinterpret_cast<const Real*>(run.reduced) + at;
      kernels().in<Real>().lamb.step(update.param, directions, update.count, of_run);
    } else {
      TileSlots slots(optim, section);
      slots.load(update, share);
      gradients_.take(section, sources_of(r), at, update);
      const uint64_t found = kernels().in<Real>().update[rule.number](update, of_run);
      if (fused && found > 0) [[unlikely]] {
        nonfinite_ += run.gaps ? count_in_params(section, share, count) : found;
      }
      slots.store(update, share, optim.random_at(run.segment) + at, of_run.step);
    }
    store_master(optim, section, own, kept, master, update.count);
    copy_to_others(targets, done, update.count * size_of(section.dtype));
  }

  /// Preserves the tile for a save that has not written it yet.
  void keep(const Section& section, int32_t number, int64_t share, const std::byte* own,
            size_t count) {
    if (optim.image->whole()) return;
    optim.keep(own, count * size_of(section.dtype));
    for (int slot = 0; slot < kSlotCount; slot++) {
      const std::byte* const values = optim.slot(slot, number, share);
      if (values != nullptr) optim.keep(values, count * optim.slot_size(slot, section));
    }
  }

  /// Counts the non-finite gradients of the current tile, without the padding between parameters,
  /// which may hold anything.
  uint64_t count_in_params(const Section& section, int64_t share, int64_t count) {
    uint64_t found = 0;
    auto view = std::partition_point(
        memory.views.begin(), memory.views.end(),
        [share](const View& v) { return v.segment.share + v.segment.count <= share; });
    for (; view != memory.views.end() && view->segment.share < share + count; ++view) {
      const int64_t begin = std::max<int64_t>(view->segment.share - share, 0);
      const int64_t end = std::min(view->segment.share + view->segment.count - share, count);
      found += gradients_.nonfinite(section, begin, end);
    }
    return found;
  }

  const Runs& runs_;
  TileGradients gradients_;
  uint64_t nonfinite_ = 0;
  int64_t unlooked_ = 0;  // elements since the last check whether the comm is aborted
  alignas(64) std::byte master_[kShortTile * sizeof(float)];
};

struct PlaceInRuns {
  size_t run;
  int64_t first;  // element of the run
};

/// Returns the run of an element, which is counted through all runs in order.
PlaceInRuns place_in(const Runs& runs, int64_t element) {
  size_t r = 0;
  for (; r < runs.runs.size() && element >= runs.runs[r].segment.count; r++)
    element -= runs.runs[r].segment.count;
  return {r, element};
}

/// Runs the first of two walks, for rules that need two.
Result<Trusted> walk_first(const Pass& pass, std::vector<uint64_t>& nonfinite) {
  if (!pass.optim.any_rule(has_trust)) return Trusted();
  const auto stepper = [&](int thread) -> StepView {
    auto updater = std::make_shared<Updater>(pass, pass.memory.runs);
    return [updater, thread, found = &nonfinite[static_cast<size_t>(thread)]](size_t view,
                                                                              double ratio) {
      updater->walk_back(view, ratio, thread == 0);
      *found = updater->nonfinite();
    };
  };
  return trust_ratios(pass, stepper, &nonfinite[0]);
}

/// Counts the bytes that the update read and wrote.
void count_updated(Optimizer& optim, const Runs& runs, bool fused) {
  for (const Run& run : runs.runs) {
    const Section& section = optim.plan.section(run.segment.section);
    const size_t gradients =
        fused ? runs.sources.width * size_of(section.grad_dtype) : size_of(section.sum());
    optim.counters.moved_bytes += run.segment.count * bytes_updated(optim, section, gradients);
  }
}

}  // namespace

int64_t bytes_updated(const Optimizer& optim, const Section& section, size_t gradients) {
  const bool steps = writes_directions(optim.rule_of(section));
  const bool keeps = optim.master_of(section) == Master::full;  // then the parameter is not read
  size_t bytes =
      size_of(section.dtype) * (keeps ? 1 : 2) + 2 * optim.slot_size(kMasterSlot, section);
  bytes += steps ? size_of(section.sum()) : gradients + bytes_of_slots(optim, section);
  return static_cast<int64_t>(bytes);
}

Result<uint64_t> update_share(Call& call, Optimizer& optim, StepMemory& memory, bool fused) {
  const Runs& runs = memory.runs;
  const std::vector<Scalars> scalars = prepare_classes(optim, memory, optim.state.factor);
  const int threads = optim.pool->threads();
  std::vector<uint64_t> nonfinite(static_cast<size_t>(threads));
  const Pass pass{&call, optim, memory, scalars, fused};
  const Trusted trusted = ZERO_TRY(walk_first(pass, nonfinite));
  if (optim.any_rule(has_trust)) count_measured(optim, memory, fused);
  // Updates begin at the end of the share, because the next forward pass reads those parameters
  // first.
  const int64_t slice = memory.background == nullptr ? runs.elements : kSlice;
  for (int64_t begin = 0, end = runs.elements; end > 0; end = begin) {
    begin = (end - 1) / slice * slice;
    const Dealt dealt(end - begin, kAlignment, threads);
    optim.pool->run([&](int thread) {
      const auto [first, last] = dealt.part(thread);
      Updater updater(pass, runs);
      auto [r, from] = place_in(runs, begin + first);
      for (int64_t left = last - first; left > 0; r++, from = 0) {
        const Run& run = runs.runs[r];
        const int64_t count = std::min(run.segment.count - from, left);
        left -= count;
        if (trusted.stepped(run.view)) continue;
        if (!updater.walk(r, from, from + count, trusted.ratio(run.view), thread == 0)) break;
      }
      nonfinite[static_cast<size_t>(thread)] += updater.nonfinite();
    });
    if (memory.background == nullptr) continue;
    if (optim.comm->aborted()) break;
    const auto [r, from] = place_in(runs, begin);
    memory.background->tell(begin == 0 ? 0 : runs.runs[r].segment.share + from);
    os().reached("apply.told");
  }
  if (memory.background != nullptr && runs.elements == 0) memory.background->tell(0);
  count_updated(optim, runs, fused);
  return std::accumulate(nonfinite.begin(), nonfinite.end(), uint64_t{0});
}

void round_share(Optimizer& optim) {
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    if (optim.shared(section) == section.dtype) continue;
    std::byte* const own = optim.values(segment);
    write_values(section.dtype, optim.options, own, reinterpret_cast<const float*>(own),
                 static_cast<size_t>(segment.count));
  }
}

SegmentUpdater::SegmentUpdater(const Optimizer& optim, const StepMemory& memory, double factor)
    : optim_(optim),
      memory_(memory),
      scalars_(prepare_classes(optim, memory, factor)),
      targets_(memory.targets) {
  for (const View& view : memory.views) classes_.push_back(view.cls);
  run_.runs.resize(1);
  run_.sources.width = memory.sources.width;
  run_.targets.width = memory.targets.width;
}

uint64_t SegmentUpdater::update(size_t number, Sources::Row gradients, int64_t first,
                                int64_t last) {
  const Segment& segment = optim_.segments()[number];
  run_.runs[0] = {{segment, classes_[number], nullptr}, false, 0};
  run_.sources.all.assign(gradients.begin(), gradients.end());
  const auto targets = targets_[number];
  run_.targets.all.assign(targets.begin(), targets.end());
  Updater updater({nullptr, optim_, memory_, scalars_, true}, run_);
  updater.walk(0, first, last, 1, false);
  return updater.nonfinite();
}

int64_t SegmentUpdater::moved_bytes(const Section& section) const {
  return bytes_updated(optim_, section, run_.sources.width * size_of(section.grad_dtype));
}

void copy_share(const Optimizer& optim, const StepMemory& memory) {
  for (size_t v = 0; v < memory.views.size(); v++) {
    const View& view = memory.views[v];
    const size_t bytes = static_cast<size_t>(view.segment.count) *
                         size_of(optim.plan.section(view.segment.section).dtype);
    copy_to_others(memory.targets[v], 0, bytes);
  }
}

}  // namespace zero
