// SPDX-License-Identifier: Apache-2.0
#include "step/apply.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "device/thread_pool.h"
#include "kernels/float_environment.h"

namespace zero {
namespace {

// A tile of every stream fits the first-level cache, for what is read a second time. Where nothing
// is, a tile only bounds the time between two looks at the abort word, and ends cost a little.
constexpr int64_t kTile = 2048;
constexpr int64_t kLongTile = 32768;
constexpr int64_t kLook = 131072;  // elements
constexpr float kZeros[kTile] = {};

const KernelTable& kernels() { return kernel_table(best_isa()); }

/// Let thread t of the pool walk its part of `total` elements, cut at multiples of `step`.
void share_out(ThreadPool& pool, int64_t total, int64_t step,
               const std::function<void(int thread, int64_t begin, int64_t end)>& walk) {
  const int threads = pool.threads();
  const FloatEnvironment environment;  // an engine's collective may have left another
  if (threads == 1) return walk(0, 0, total);
  const int64_t part = round_up(total / threads + 1, step);
  pool.run([&](int thread) {
    const int64_t begin = std::min(total, part * thread);
    const int64_t end = std::min(total, begin + part);
    if (begin < end) walk(thread, begin, end);
  });
}

/// Scalars of every class for the step about to be made.
std::vector<Scalars> prepare_classes(const Optimizer& optim, const StepMemory& memory,
                                     double factor) {
  std::vector<Scalars> scalars;
  for (const UpdateClass& cls : memory.classes) {
    const auto param = static_cast<size_t>(cls.param);
    scalars.push_back(optim.options.rule->prepare(
        {.settings = optim.groups[static_cast<size_t>(optim.params[param].group)].settings,
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
        update_(kernels().update[optim.options.optimizer]),
        in_(runs.source_width) {}

  /// Elements [begin, end) of all runs, counted in order.
  uint64_t walk(int64_t begin, int64_t end, bool reports_progress) {
    int64_t passed = 0, unlooked = 0;
    for (size_t r = 0; r < runs_.runs.size() && passed < end; r++) {
      const Run& run = runs_.runs[r];
      const int64_t first = std::max<int64_t>(0, begin - passed);
      const int64_t last = std::min(run.count, end - passed);
      const int64_t length = tile_length(r);
      for (int64_t at = first; at < last; at += length) {
        const int64_t count = std::min(length, last - at);
        tile(r, run, at, count);
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
  int64_t tile_length(size_t r) const {
    const float* const* sources = &runs_.sources[r * runs_.source_width];
    const bool zeros =
        std::find(sources, sources + runs_.source_width, nullptr) != sources + runs_.source_width;
    const bool copies =
        runs_.target_width > 1 && runs_.targets[r * runs_.target_width + 1] != nullptr;
    return zeros || copies ? kTile : kLongTile;
  }

  void tile(size_t r, const Run& run, int64_t at, int64_t count) {
    const auto elements = static_cast<size_t>(count);
    const float* const* sources = &runs_.sources[r * runs_.source_width];
    float* const* targets = &runs_.targets[r * runs_.target_width];
    for (size_t i = 0; i < runs_.source_width; i++) {
      in_[i] = sources[i] == nullptr ? kZeros : sources[i] + at;
    }
    UpdateRun update{.param = targets[0] + at, .grad = in_[0], .slots = {}, .count = elements};
    update.others = in_.data() + 1;
    update.other_count = static_cast<int>(runs_.source_width) - 1;
    for (size_t slot = 0; slot < optim_.options.rule->slots.size(); slot++) {
      update.slots[slot] = optim_.slot(static_cast<int>(slot), run.share + at);
    }
    const uint64_t found = update_(update, scalars_[static_cast<size_t>(run.cls)]);
    if (fused_ && found > 0) [[unlikely]] {
      nonfinite_ += run.gaps ? count_in_params(run.share + at, count) : found;
    }
    for (size_t i = 1; i < runs_.target_width && targets[i] != nullptr; i++) {
      std::memcpy(targets[i] + at, update.param, elements * sizeof(float));
    }
  }

  /// Padding between parameters may hold anything: the count of the tile in `in_` without it.
  uint64_t count_in_params(int64_t share, int64_t count) {
    Reducer reducer(kernels(), 0);
    std::vector<const float*> sources(in_.size());
    auto view = std::partition_point(
        memory_.views.begin(), memory_.views.end(),
        [share](const View& v) { return v.segment.share + v.segment.count <= share; });
    for (; view != memory_.views.end() && view->segment.share < share + count; ++view) {
      const int64_t begin = std::max<int64_t>(view->segment.share - share, 0);
      const int64_t end = std::min(view->segment.share + view->segment.count - share, count);
      for (int64_t at = begin; at < end; at += kTile) {
        for (size_t i = 0; i < in_.size(); i++) sources[i] = in_[i] + at;
        reducer.reduce(sum_, sources, static_cast<size_t>(std::min(kTile, end - at)));
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
  const UpdateKernel update_;
  std::vector<const float*> in_;
  uint64_t nonfinite_ = 0;
  alignas(64) float sum_[kTile];
};

/// Walk the pieces of elements [begin, end) of the views with a gradient; a piece belongs to whom
/// its first element does.
template <class Piece>
void walk_pieces(const Optimizer& optim, const StepMemory& memory, int64_t begin, int64_t end,
                 const Piece& piece) {
  int64_t passed = 0;
  for (size_t v = 0; v < memory.views.size() && passed < end; v++) {
    const View& view = memory.views[v];
    if (view.cls < 0) continue;
    if (passed + view.segment.count > begin) {
      for_each_piece(optim.plan, view.segment, [&](int64_t first, int64_t count) {
        if (passed + first >= begin && passed + first < end) piece(v, view, first, count);
      });
    }
    passed += view.segment.count;
  }
}

int64_t elements_with_gradient(const StepMemory& memory) {
  int64_t elements = 0;
  for (const View& view : memory.views) elements += view.cls < 0 ? 0 : view.segment.count;
  return elements;
}

}  // namespace

NormRecord reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p) {
  const auto world = static_cast<size_t>(optim.world());
  const int64_t elements = elements_with_gradient(memory);
  std::vector<NormRecord> records(static_cast<size_t>(optim.pool->threads()));
  share_out(*optim.pool, elements, kBlock, [&](int thread, int64_t begin, int64_t end) {
    Reducer reducer(kernels(), p);
    std::vector<const float*> in(world);
    int pieces = 0;
    bool aborted = false;
    walk_pieces(optim, memory, begin, end,
                [&](size_t v, const View& view, int64_t first, int64_t count) {
                  if (aborted) return;
                  const float* const* sources = &memory.view_sources[v * world];
                  for (size_t i = 0; i < world; i++)
                    in[i] = sources[i] == nullptr ? kZeros : sources[i] + first;
                  float* out = view.reduced + first;
                  reducer.reduce(out, in, static_cast<size_t>(count));
                  if (++pieces % 128 == 0) {
                    aborted = call.comm().aborted();
                    if (thread == 0) call.progress();
                  }
                });
    records[static_cast<size_t>(thread)] = reducer.record();
  });
  NormRecord total;
  for (const NormRecord& record : records) total.add(record);
  optim.counters.moved_bytes += elements * static_cast<int64_t>(4 * (world + 1));
  return total;
}

NormRecord norm_of_share(Optimizer& optim, const StepMemory& memory, double p) {
  const int64_t elements = elements_with_gradient(memory);
  std::vector<NormRecord> records(static_cast<size_t>(optim.pool->threads()));
  share_out(*optim.pool, elements, kBlock, [&](int thread, int64_t begin, int64_t end) {
    Reducer reducer(kernels(), p);
    walk_pieces(optim, memory, begin, end,
                [&](size_t, const View& view, int64_t first, int64_t count) {
                  const float* const sum = view.reduced + first;
                  reducer.reduce(view.reduced + first, {&sum, 1}, static_cast<size_t>(count));
                });
    records[static_cast<size_t>(thread)] = reducer.record();
  });
  NormRecord total;
  for (const NormRecord& record : records) total.add(record);
  optim.counters.moved_bytes += elements * 4;
  return total;
}

uint64_t update_share(Call& call, Optimizer& optim, StepMemory& memory, double factor, bool fused) {
  const Runs& runs = fused ? memory.fused : memory.from_reduced;
  const std::vector<Scalars> scalars = prepare_classes(optim, memory, factor);
  std::vector<uint64_t> nonfinite(static_cast<size_t>(optim.pool->threads()));
  share_out(*optim.pool, runs.elements, kAlignment, [&](int thread, int64_t begin, int64_t end) {
    Updater updater(call, optim, memory, runs, scalars, fused);
    nonfinite[static_cast<size_t>(thread)] = updater.walk(begin, end, thread == 0);
  });
  int slots = 0;
  for (uint32_t used = optim.slots_used(); used != 0; used &= used - 1) slots++;
  const auto floats = static_cast<int64_t>(runs.source_width) + 2 + 2 * slots;
  optim.counters.moved_bytes += runs.elements * 4 * floats;
  uint64_t total = 0;
  for (const uint64_t found : nonfinite) total += found;
  return total;
}

void copy_share(const StepMemory& memory) {
  for (size_t v = 0; v < memory.views.size(); v++) {
    const View& view = memory.views[v];
    float* const* targets = &memory.view_targets[v * memory.target_width];
    for (size_t i = 1; i < memory.target_width && targets[i] != nullptr; i++) {
      std::memcpy(targets[i], targets[0], static_cast<size_t>(view.segment.count) * sizeof(float));
    }
  }
}

}  // namespace zero
