// SPDX-License-Identifier: Apache-2.0
#include "support/ptx/reach.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "kernels/launch_state.h"

namespace zero::test::ptx {
namespace {

using namespace launch;

class Reach {
 public:
  std::vector<Span> spans;

  void operator()(const Reduce& launch) {
    add(launch.pieces, launch.count, "pieces");
    add(launch.record, 1, "the record of sums");
    for (uint32_t i = 0; i < launch.count; i++) {
      const PieceRow& piece = launch.pieces[i];
      const launch::Sums& sums = launch.sums[piece.of];
      add(&sums, 1, "sums");
      const size_t first = static_cast<size_t>(sums.pointers) * launch.width;
      add(launch.sources + first, launch.width, "pointers to sources");
      for (uint32_t s = 0; s < launch.width; s++)
        elements(launch.sources[first + s], launch.format.grad, piece.first, piece.count,
                 "a source");
      elements(sums.out, launch.format.sum, piece.first, piece.count, "the sums");
    }
  }
  void operator()(const Decide& launch) {
    add(launch.records, launch.world, "the ranks' records");
    add(launch.broken, 1, "the word of a broken comm");
    value(launch.loss_scale, launch.loss_scale_dtype, "the loss scale");
    add(launch.state, 1, "the state");
  }
  void operator()(const Fetch& launch) {
    add(launch.given, launch.count, "places of values");
    for (uint32_t i = 0; i < launch.count; i++) {
      value(launch.given[i].from, launch.given[i].dtype, "a value");
      add(launch.given[i].to, 1, "a setting");
    }
    add(launch.state, 1, "the state");
  }
  void operator()(const Prepare& launch) {
    add(launch.optimizers, launch.count, "rules of classes");
    add(launch.settings, static_cast<size_t>(launch.count) * kMaxSettings, "settings");
    add(launch.params, launch.count, "parameters of classes");
    for (uint32_t i = 0; i < launch.count; i++)
      add(launch.progress + launch.params[i], 1, "progress");
    add(launch.state, 1, "the state");
    add(launch.out, launch.count, "scalars");
  }
  void operator()(const Update& launch) {
    add(launch.state, 1, "the state");
    if (!is_made(*launch.state)) return;
    add(launch.tiles, launch.count, "tiles");
    add(launch.nonfinite, 1, "the count of what is not finite");
    for (uint32_t i = 0; i < launch.count; i++) tile(launch, launch.tiles[i]);
  }
  void operator()(const Advance& launch) {
    add(launch.records, launch.world, "the ranks' records");
    add(launch.present, launch.count, "which gradients there are");
    add(launch.groups, launch.count, "groups");
    for (uint32_t i = 0; i < launch.count; i++) {
      add(launch.optimizers + launch.groups[i], 1, "rules of groups");
      add(launch.used + launch.groups[i], 1, "slots that are used");
      add(launch.settings + static_cast<size_t>(launch.groups[i]) * kMaxSettings, kMaxSettings,
          "settings");
    }
    add(launch.progress, launch.count, "progress");
    add(launch.state, 1, "the state");
  }
  void operator()(const Moves& launch) {
    add(launch.unless_skipped, 1, "the state");
    add(launch.tiles, launch.count, "tiles");
    for (uint32_t i = 0; i < launch.count; i++) {
      const Tile& tile = launch.tiles[i];
      const Move& move = launch.moves[tile.of];
      add(&move, 1, "moves");
      elements(move.from, launch.from, tile, move.count, "what is moved");
      elements(move.to, launch.to, tile, move.count, "where it goes");
    }
  }
  void operator()(const Clamp& launch) {
    add(launch.pieces, launch.count, "pieces");
    add(launch.state, 1, "the state");
    for (uint32_t i = 0; i < launch.count; i++) {
      const PieceRow& piece = launch.pieces[i];
      const launch::Sums& sums = launch.sums[piece.of];
      add(&sums, 1, "sums");
      elements(sums.out, launch.sum, piece.first, piece.count, "the sums");
    }
  }

 private:
  void tile(const Update& launch, const Tile& tile) {
    const RunRow& run = launch.runs[tile.of];
    add(&run, 1, "runs");
    add(launch.scalars + run.cls, 1, "scalars");
    const Format& format = launch.format;
    elements(run.param, format.param, tile, run.count, "a parameter");
    const DType kept = format.master == Master::remainder ? DType::bf16 : format.sum;
    elements(run.kept, kept, tile, run.count, "what is kept beside a parameter");
    const DType stored = format.slots == SlotFormat::bf16 ? DType::bf16 : format.sum;
    for (std::byte* const slot : run.slots) elements(slot, stored, tile, run.count, "a slot");
    const size_t first = static_cast<size_t>(run.pointers) * launch.width;
    add(launch.sources + first, launch.width, "pointers to sources");
    for (uint32_t i = 0; i < launch.width; i++)
      elements(launch.sources[first + i], launch.reduced ? format.sum : format.grad, tile,
               run.count, "a source");
    const size_t targets = static_cast<size_t>(run.pointers) * launch.targets_width;
    add(launch.targets + targets, launch.targets_width, "pointers to targets");
    for (uint32_t i = 0; i < launch.targets_width && launch.targets[targets + i] != nullptr; i++)
      elements(launch.targets[targets + i], format.param, tile, run.count, "a target");
  }

  /// Memory to which a pointer to const refers must not be written.
  template <class T>
  void add(T* first, size_t count, std::string_view what) {
    if (first != nullptr) spans.push_back({first, count * sizeof(T), !std::is_const_v<T>, what});
  }
  void value(const void* from, DType dtype, std::string_view what) {
    add(static_cast<const std::byte*>(from), size_of(dtype), what);
  }
  template <class Byte>
  void elements(Byte* begin, DType dtype, int64_t first, int64_t count, std::string_view what) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    if (begin != nullptr) add(begin + first * size, static_cast<size_t>(count * size), what);
  }
  template <class Byte>
  void elements(Byte* begin, DType dtype, const Tile& tile, int64_t count, std::string_view what) {
    const int64_t first = tile.number * kTileElements;
    elements(begin, dtype, first, std::min(count - first, kTileElements), what);
  }
};

}  // namespace

std::vector<Span> reach_of(const Launch& launch) {
  Reach reach;
  std::visit(reach, launch);
  return std::move(reach.spans);
}

}  // namespace zero::test::ptx
