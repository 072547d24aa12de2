// SPDX-License-Identifier: Apache-2.0
#include "step/trust.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "base/os.h"
#include "kernels/clamp.h"
#include "step/pieces.h"

namespace zero {
namespace {

// Elements that are measured between two checks whether the comm is aborted.
constexpr size_t kBatch = 32 * static_cast<size_t>(kBlock);

/// Sums of squares of one tensor, or of one rank's part of it. Trivially copyable, because ranks
/// exchange them as bytes.
struct TensorNorms {
  ExactSum param, direction;

  void add(const Squares& piece) {
    param.add(piece.param);
    direction.add(piece.direction);
  }
  void add(const TensorNorms& other) {
    param.add(other.param);
    direction.add(other.direction);
  }
};

Squares sums_of(const TensorNorms& norms) { return {norms.param.value(), norms.direction.value()}; }

/// Returns the exact sum of the pieces of a whole tensor, rounded once. For two pieces this equals
/// their floating-point sum.
Squares total(std::span<const Squares> pieces) {
  if (pieces.empty()) return {};
  if (pieces.size() == 1) return pieces[0];
  if (pieces.size() == 2)
    return {pieces[0].param + pieces[1].param, pieces[0].direction + pieces[1].direction};
  TensorNorms norms;
  for (const Squares& piece : pieces) norms.add(piece);
  return sums_of(norms);
}

/// Measures pieces on one thread, and updates moments if the ratio depends on the update.
class Measurer : Pass {
 public:
  explicit Measurer(const Pass& pass) : Pass(pass), gradients_(pass) {}

  /// Measures consecutive pieces, given as one. The first has `head` elements.
  void measure(const Piece& all, size_t head, Squares* out) {
    if (is_of_update(all) && is_plain(all)) return measure_as_one(all, head, out);
    for (size_t done = 0, count = head; done < all.count; done += count, count = kBlock) {
      count = std::min(count, all.count - done);
      std::byte* const sums = all.sums + done * size_of(all.section.sum());
      measure_as_one({all.view, all.section, all.first + done, count, sums}, count, out++);
    }
  }
  uint64_t nonfinite() const { return nonfinite_; }

 private:
  bool is_of_update(const Piece& piece) const {
    return writes_directions(optim.rule_of(piece.section));
  }

  /// Returns true if several pieces can be measured as one. Values that are converted and zeros
  /// that replace an absent gradient have room for only one piece.
  bool is_plain(const Piece& piece) const {
    const Master master = optim.master_of(piece.section);
    if (gradients_.converts(piece.section) || TileSlots::converts(optim, piece.section) ||
        (master != Master::param && master != Master::full))
      return false;
    if (!fused) return true;
    const auto sources = memory.sources[piece.view];
    return std::ranges::find(sources, nullptr) == sources.end();
  }

  void measure_as_one(const Piece& piece, size_t head, Squares* out) {
    piece.section.sum() == DType::f64 ? measure_as<double>(piece, head, out)
                                      : measure_as<float>(piece, head, out);
  }

  template <class Real>
  void measure_as(const Piece& piece, size_t head, Squares* out) {
    const View& view = memory.views[piece.view];
    const int64_t share = view.segment.share + static_cast<int64_t>(piece.first);
    std::byte* const own =
        memory.targets[piece.view][0] + piece.first * size_of(piece.section.dtype);
    std::byte* const param =
        load_master(optim, piece.section, own, optim.slot(kMasterSlot, view.segment.section, share),
                    room_, piece.count);
    const Scalars& of_view = scalars[static_cast<size_t>(view.cls)];
    if (is_of_update(piece))
      return update(piece, share, reinterpret_cast<Real*>(param), of_view, head, out);
    out->param = take(piece, param);
    scale(reinterpret_cast<Real*>(room_), reinterpret_cast<const Real*>(piece.sums), piece.count,
          static_cast<Real>(of_view.factor));
    out->direction = take(piece, room_);
  }

  /// Returns the sum of squares of `values`, which it copies to room_.
  double take(const Piece& piece, const std::byte* values) {
    const DType type = piece.section.sum();
    const void* const in = values;
    return kernels().reduction(type, type, Norm::squares)(room_, &in, 1, piece.count).norm;
  }

  /// Updates moments, and stores the direction in the place of the sum of gradients.
  template <class Real>
  void update(const Piece& piece, int64_t share, Real* param, const Scalars& of_view, size_t head,
              Squares* out) {
    const View& view = memory.views[piece.view];
    UpdateRunOf<Real> run{};
    run.param = param;
    run.count = piece.count;
    TileSlots slots(optim, piece.section);
    slots.load(run, share);
    const auto sources = fused ? memory.sources[piece.view] : Sources::Row(&view.reduced, 1);
    gradients_.take(piece.section, sources, static_cast<int64_t>(piece.first), run);
    const uint64_t found = kernels().in<Real>().lamb.measure(
        run, reinterpret_cast<Real*>(piece.sums), of_view, head, kBlock, out);
    if (fused) nonfinite_ += found;
    slots.store(run, share, optim.random_at(view.segment) + static_cast<int64_t>(piece.first),
                of_view.step);
  }

  TileGradients gradients_;
  uint64_t nonfinite_ = 0;
  alignas(64) std::byte room_[kBlock * sizeof(double)];
};

/// Returns the number of the first piece of each view, counted through all views, followed by the
/// total.
std::vector<size_t> number_pieces(const Optimizer& optim, const StepMemory& memory) {
  std::vector<size_t> firsts;
  size_t pieces = 0;
  for (const View& view : memory.views) {
    firsts.push_back(pieces);
    if (view.cls >= 0)
      for_each_piece(optim.plan, view.segment, [&](int64_t, int64_t) { pieces++; });
  }
  firsts.push_back(pieces);
  return firsts;
}

/// Returns the index of a parameter in StepMemory::cut, or the size of that vector if the parameter
/// is not cut.
size_t place_in_cut(const StepMemory& memory, int64_t param) {
  const auto found = std::lower_bound(memory.cut.begin(), memory.cut.end(), param);
  const bool is_cut = found != memory.cut.end() && *found == param;
  return is_cut ? static_cast<size_t>(found - memory.cut.begin()) : memory.cut.size();
}

/// The first walk and its results.
class FirstWalk : Pass {
 public:
  FirstWalk(const Pass& pass, const MakeStepView& stepper)
      : Pass(pass),
        stepper_(stepper),
        firsts_(number_pieces(optim, memory)),
        squares_(firsts_.back()),
        trusted_{std::vector<double>(memory.views.size()), std::vector<char>(memory.views.size())} {
  }

  void run() {
    deal_out_views(optim, memory,
                   [&](int thread, int64_t begin, int64_t end) { walk(thread, begin, end); });
  }

  /// Returns the squares of the pieces of a view, in order.
  std::span<const Squares> squares(size_t view) const {
    return std::span(squares_).subspan(firsts_[view], firsts_[view + 1] - firsts_[view]);
  }
  uint64_t nonfinite() const { return nonfinite_; }

  /// Returns the result, with ratios for the views that have not been stepped yet. `cut` has the
  /// norms of the parameters in StepMemory::cut.
  Trusted trusted(const std::vector<TensorNorms>& cut) {
    for (size_t v = 0; v < memory.views.size(); v++) {
      if (trusted_.stepped(v) || !has_trust(optim.rule_of(memory.views[v].segment))) continue;
      const size_t place = place_in_cut(memory, memory.views[v].segment.param);
      trusted_.ratios[v] = ratio(v, place < cut.size() ? sums_of(cut[place]) : total(squares(v)));
    }
    return std::move(trusted_);
  }

 private:
  /// Runs the part of one thread.
  void walk(int thread, int64_t begin, int64_t end) {
    Measurer measurer(*this);
    const StepView step_view = stepper_(thread);
    std::optional<Piece> batch;
    size_t head = 0, measured = 0;  // elements of the first piece in the batch, and of the view
    const auto measure = [&] {
      if (!batch || call->comm().aborted()) return;
      measurer.measure(*batch, head, squares_of(*batch));
      measured += batch->count;
      if (thread == 0) call->progress();
      if (!is_whole(batch->view, measured)) return;
      trusted_.ratios[batch->view] = ratio(batch->view, total(squares(batch->view)));
      step_view(batch->view, trusted_.ratios[batch->view]);
      trusted_.steps[batch->view] = 1;
    };
    walk_pieces(optim, memory, begin, end, [&](const Piece& piece) {
      if (!has_trust(optim.rule_of(piece.section))) return;
      const bool same = batch && batch->view == piece.view;
      if (same && batch->count < kBatch) {
        batch->count += piece.count;
        return;
      }
      measure();
      if (!same) measured = 0;
      batch.emplace(piece);
      head = piece.count;
    });
    measure();
    nonfinite_ += measurer.nonfinite();
  }

  /// Returns where the squares of this piece and those after it are stored.
  Squares* squares_of(const Piece& piece) {
    const Segment& segment = memory.views[piece.view].segment;
    const int64_t at = optim.plan.grid_of(segment) % kBlock;
    const auto number = static_cast<size_t>((at + static_cast<int64_t>(piece.first)) / kBlock);
    return &squares_[firsts_[piece.view] + number];
  }

  /// Returns true if the thread has measured the whole tensor. A tensor that is not cut is a single
  /// view.
  bool is_whole(size_t view, size_t measured) const {
    const Segment& segment = memory.views[view].segment;
    return measured == static_cast<size_t>(segment.count) &&
           place_in_cut(memory, segment.param) == memory.cut.size();
  }

  double ratio(size_t view, const Squares& sums) const {
    const auto param = static_cast<size_t>(memory.views[view].segment.param);
    return optim.rule_of(optim.params[param])
        .trust->ratio(optim.settings_of(param), std::sqrt(sums.param), std::sqrt(sums.direction));
  }

  const MakeStepView& stepper_;
  const std::vector<size_t> firsts_;
  std::vector<Squares> squares_;
  Trusted trusted_;
  std::atomic<uint64_t> nonfinite_ = 0;
};

/// Adds up the parts of the cut tensors on all ranks.
Status add_up(Call& call, const Optimizer& optim, std::span<TensorNorms> cut) {
  if (cut.empty()) return Status();
  for (TensorNorms& part : cut) part = optim.counted(part);
  os().reached("trust.before");
  ZERO_TRY(call.combine_each("norms of tensors", cut));
  os().reached("trust.after");
  return Status();
}

}  // namespace

Result<Trusted> trust_ratios(const Pass& pass, const MakeStepView& stepper, uint64_t* nonfinite) {
  const StepMemory& memory = pass.memory;
  FirstWalk walk(pass, stepper);
  walk.run();
  *nonfinite += walk.nonfinite();
  std::vector<TensorNorms> cut(memory.cut.size());
  for (size_t v = 0; v < memory.views.size(); v++) {
    const size_t place = place_in_cut(memory, memory.views[v].segment.param);
    if (place == cut.size()) continue;
    for (const Squares& piece : walk.squares(v)) cut[place].add(piece);
  }
  ZERO_TRY(add_up(*pass.call, pass.optim, cut));
  return walk.trusted(std::move(cut));
}

void count_measured(Optimizer& optim, const StepMemory& memory, bool fused) {
  count_moved(optim, memory, [&](const Section& section) -> size_t {
    const Rule& rule = optim.rule_of(section);
    if (!has_trust(rule)) return 0;
    const bool keeps = optim.master_of(section) == Master::full;
    size_t bytes =
        optim.slot_size(kMasterSlot, section) + (keeps ? 0 : size_of(section.dtype)) +
        (fused ? memory.sources.width * size_of(section.grad_dtype) : size_of(section.sum()));
    if (!writes_directions(rule)) return bytes;
    return bytes + size_of(section.sum()) + bytes_of_slots(optim, section);
  });
}

}  // namespace zero
