// SPDX-License-Identifier: Apache-2.0
#include "support/ptx/reach.h"

#include <algorithm>
#include <variant>

#include "kernels/launch_state.h"

namespace zero::test::ptx {
namespace {

using namespace launch;

class Reach {
 public:
  std::vector<Span> spans;

  void operator()(const Reduce& launch) {
    read(launch.pieces, launch.count, "pieces");
    write(launch.record, 1, "the record of sums");
    for (uint32_t i = 0; i < launch.count; i++) {
      const Piece& piece = launch.pieces[i];
      const launch::Sums& sums = launch.sums[piece.of];
      read(&sums, 1, "sums");
      const size_t first = static_cast<size_t>(sums.pointers) * launch.width;
      read(launch.sources + first, launch.width, "pointers to sources");
      for (uint32_t s = 0; s < launch.width; s++)
        elements(launch.sources[first + s], launch.format.grad, piece.first, piece.count, false,
                 "a source");
      elements(sums.out, launch.format.sum, piece.first, piece.count, true, "the sums");
    }
  }
  void operator()(const Decide& launch) {
    read(launch.records, launch.world, "the ranks' records");
    read(launch.broken, 1, "the word of a broken comm");
    value(launch.loss_scale, launch.loss_scale_dtype, "the loss scale");
    write(launch.state, 1, "the state");
  }
  void operator()(const Fetch& launch) {
    read(launch.given, launch.count, "places of values");
    for (uint32_t i = 0; i < launch.count; i++) {
      value(launch.given[i].from, launch.given[i].dtype, "a value");
      write(launch.given[i].to, 1, "a setting");
    }
    write(launch.state, 1, "the state");
  }
  void operator()(const Prepare& launch) {
    read(launch.settings, static_cast<size_t>(launch.count) * kMaxSettings, "settings");
    read(launch.params, launch.count, "parameters of classes");
    for (uint32_t i = 0; i < launch.count; i++)
      read(launch.progress + launch.params[i], 1, "progress");
    read(launch.state, 1, "the state");
    write(launch.out, launch.count, "scalars");
  }
  void operator()(const Update& launch) {
    read(launch.state, 1, "the state");
    if (!is_made(*launch.state)) return;
    read(launch.tiles, launch.count, "tiles");
    write(launch.nonfinite, 1, "the count of what is not finite");
    for (uint32_t i = 0; i < launch.count; i++) add(launch, launch.tiles[i]);
  }
  void operator()(const Advance& launch) {
    read(launch.records, launch.world, "the ranks' records");
    read(launch.present, launch.count, "which gradients there are");
    read(launch.groups, launch.count, "groups");
    for (uint32_t i = 0; i < launch.count; i++) {
      read(launch.used + launch.groups[i], 1, "slots that are used");
      read(launch.settings + static_cast<size_t>(launch.groups[i]) * kMaxSettings, kMaxSettings,
           "settings");
    }
    write(launch.progress, launch.count, "progress");
    write(launch.state, 1, "the state");
  }
  void operator()(const Moves& launch) {
    read(launch.unless_skipped, 1, "the state");
    read(launch.tiles, launch.count, "tiles");
    for (uint32_t i = 0; i < launch.count; i++) {
      const Tile& tile = launch.tiles[i];
      const Move& move = launch.moves[tile.of];
      read(&move, 1, "moves");
      elements(move.from, launch.from, tile, move.count, false, "what is moved");
      elements(move.to, launch.to, tile, move.count, true, "where it goes");
    }
  }
  void operator()(const Clamp& launch) {
    read(launch.pieces, launch.count, "pieces");
    read(launch.state, 1, "the state");
    for (uint32_t i = 0; i < launch.count; i++) {
      const Piece& piece = launch.pieces[i];
      const launch::Sums& sums = launch.sums[piece.of];
      read(&sums, 1, "sums");
      elements(sums.out, launch.sum, piece.first, piece.count, true, "the sums");
    }
  }

 private:
  void add(const Update& launch, const Tile& tile) {
    const Run& run = launch.runs[tile.of];
    read(&run, 1, "runs");
    read(launch.scalars + run.cls, 1, "scalars");
    const Format& format = launch.format;
    elements(run.param, format.param, tile, run.count, true, "a parameter");
    const DType kept = format.master == Master::remainder ? DType::bf16 : format.sum;
    elements(run.kept, kept, tile, run.count, true, "what is kept beside a parameter");
    for (std::byte* const slot : run.slots)
      elements(slot, format.sum, tile, run.count, true, "a slot");
    const size_t first = static_cast<size_t>(run.pointers) * launch.width;
    read(launch.sources + first, launch.width, "pointers to sources");
    for (uint32_t i = 0; i < launch.width; i++)
      elements(launch.sources[first + i], launch.reduced ? format.sum : format.grad, tile,
               run.count, false, "a source");
    const size_t targets = static_cast<size_t>(run.pointers) * launch.targets_width;
    read(launch.targets + targets, launch.targets_width, "pointers to targets");
    for (uint32_t i = 0; i < launch.targets_width && launch.targets[targets + i] != nullptr; i++)
      elements(launch.targets[targets + i], format.param, tile, run.count, true, "a target");
  }

  template <class T>
  void read(const T* first, size_t count, std::string_view what) {
    if (first != nullptr) spans.push_back({first, count * sizeof(T), false, what});
  }
  template <class T>
  void write(T* first, size_t count, std::string_view what) {
    if (first != nullptr) spans.push_back({first, count * sizeof(T), true, what});
  }
  void value(const void* from, DType dtype, std::string_view what) {
    if (from != nullptr) spans.push_back({from, size_of(dtype), false, what});
  }
  void elements(const std::byte* begin, DType dtype, int64_t first, int64_t count, bool writable,
                std::string_view what) {
    if (begin == nullptr) return;
    const auto size = static_cast<int64_t>(size_of(dtype));
    spans.push_back({begin + first * size, static_cast<size_t>(count * size), writable, what});
  }
  void elements(const std::byte* begin, DType dtype, const Tile& tile, int64_t count, bool writable,
                std::string_view what) {
    const int64_t first = tile.number * kTileElements;
    elements(begin, dtype, first, std::min(count - first, kTileElements), writable, what);
  }
};

}  // namespace

std::vector<Span> reach_of(const Launch& launch) {
  Reach reach;
  std::visit(reach, launch);
  return std::move(reach.spans);
}

}  // namespace zero::test::ptx
