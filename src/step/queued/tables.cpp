// SPDX-License-Identifier: Apache-2.0
#include "step/queued/tables.h"

#include <algorithm>

#include "step/norm.h"
#include "step/queued/upload.h"
#include "step/travel.h"

namespace zero::queued {
namespace {

using launch::kTileElements;
using Sources = std::vector<const std::byte*>;

size_t bytes_of(int64_t elements, DType dtype) {
  return static_cast<size_t>(elements) * size_of(dtype);
}

template <class Byte>
Byte* moved(Byte* from, int64_t elements, DType dtype) {
  return from == nullptr ? nullptr : from + bytes_of(elements, dtype);
}

void add_tiles(std::vector<launch::Tile>& tiles, size_t of, int64_t count) {
  for (int64_t at = 0; at < count; at += kTileElements)
    tiles.push_back({static_cast<uint32_t>(of), static_cast<uint32_t>(at / kTileElements)});
}

Range range_from(size_t first, size_t end) {
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)};
}

/// The runs of each batch, their addresses and tiles.
class Updates {
 public:
  Updates(const Optimizer& optim, const Runs& all) : optim_(optim), all_(all) {}

  /// The elements of a section in share range [begin, end).
  Batch add_batch(int32_t section, int64_t begin, int64_t end) {
    const size_t first_tile = tiles.size();
    int64_t elements = 0;
    for (size_t r = 0; r < all_.runs.size(); r++) {
      const Run& run = all_.runs[r];
      const int64_t from = std::max(run.share, begin);
      const int64_t to = std::min(run.share + run.count, end);
      if (run.section != section || from >= to) continue;
      add_tiles(tiles, runs.size(), to - from);
      add(r, from - run.share, to - from);
      elements += to - from;
    }
    return {section, range_from(first_tile, tiles.size()), elements};
  }

  std::vector<launch::Run> runs;
  std::vector<launch::Tile> tiles;
  Sources sources, reduced;
  std::vector<std::byte*> targets;

 private:
  /// `count` elements of run `r`, behind `skipped`.
  void add(size_t r, int64_t skipped, int64_t count) {
    const Run& run = all_.runs[r];
    const Section& section = optim_.plan.section(run.section);
    const int64_t share = run.share + skipped;
    std::byte* const* const to = &all_.targets[r * all_.target_width];
    launch::Run added{.param = moved(to[0], skipped, section.dtype),
                      .kept = optim_.slot(kMasterSlot, run.section, share),
                      .slots = {},
                      .count = count,
                      .pointers = static_cast<uint32_t>(runs.size()),
                      .cls = run.cls};
    const auto slots = static_cast<int>(optim_.options.rule->slots.size());
    for (int slot = 0; slot < slots; slot++)
      added.slots[slot] = optim_.slot(slot, run.section, share);
    runs.push_back(added);
    for (size_t i = 0; i < all_.source_width; i++)
      sources.push_back(
          moved(all_.sources[r * all_.source_width + i], skipped, section.grad_dtype));
    reduced.push_back(moved(all_.reduced[r], skipped, section.sum()));
    for (size_t i = 1; i < all_.target_width; i++)
      targets.push_back(moved(to[i], skipped, section.dtype));
  }

  const Optimizer& optim_;
  const Runs& all_;
};

/// Where sums of the views with a gradient stand, what they are made of, and their pieces.
struct Reductions {
  Reductions(const Optimizer& optim, const StepMemory& memory) {
    int32_t section = -1;
    for (size_t v = 0; v < memory.views.size(); v++) {
      const View& view = memory.views[v];
      if (view.cls < 0) continue;
      if (view.segment.section != section) {
        section = view.segment.section;
        measured.push_back({section, range_from(pieces.size(), pieces.size()), 0});
      }
      const auto number = static_cast<uint32_t>(sums.size());
      sums.push_back({view.reduced, number, 0});
      self.push_back(view.reduced);
      const std::byte* const arrived = memory.incoming.data();
      const Section& of = optim.plan.section(section);
      if (arrived != nullptr) incoming.push_back(arrived + of.sum_at(view.segment.share));
      for (size_t i = 0; i < memory.source_width && optim.comm->direct(); i++)
        sources.push_back(memory.view_sources[v * memory.source_width + i]);
      for_each_piece(optim.plan, view.segment, [&](int64_t first, int64_t count) {
        pieces.push_back({number, static_cast<uint32_t>(count), first});
      });
      measured.back().elements += view.segment.count;
      measured.back().range.count =
          static_cast<uint32_t>(pieces.size()) - measured.back().range.first;
    }
  }

  std::vector<launch::Sums> sums;
  std::vector<launch::Piece> pieces;
  Sources sources, self, incoming;
  std::vector<Measured> measured;
};

/// What is copied on the way: all moves and their tiles.
class Copies {
 public:
  Range add(const std::vector<launch::Move>& added) {
    const size_t first = tiles.size();
    for (const launch::Move& move : added) {
      add_tiles(tiles, moves.size(), move.count);
      moves.push_back(move);
    }
    return range_from(first, tiles.size());
  }

  std::vector<launch::Move> moves;
  std::vector<launch::Tile> tiles;
};

/// This rank's gradients of a transfer, a chunk for each rank, to where they are sent.
std::vector<launch::Move> packed_gradients(const Optimizer& optim, const StepMemory& memory,
                                           const Transfer& transfer,
                                           const std::vector<std::vector<Segment>>& segments) {
  const Section& section = travel::section_of(optim, transfer);
  const DType wire = travel::wire(optim, section);
  std::vector<launch::Move> moves;
  for (size_t rank = 0; rank < segments.size(); rank++) {
    const int64_t chunk = static_cast<int64_t>(rank) * transfer.chunk;
    travel::for_each_part(transfer, segments[rank], [&](int64_t at, const Segment& segment) {
      const std::byte* const grad = memory.grads[static_cast<size_t>(segment.param)];
      if (grad == nullptr) return;
      moves.push_back({moved(grad, segment.first, section.grad_dtype),
                       memory.send.data() + bytes_of(chunk + at, wire), segment.count});
    });
  }
  return moves;
}

/// Parameters of one rank's chunk to where they are sent, or from where they arrived.
std::vector<launch::Move> moved_params(const Optimizer& optim, const StepMemory& memory,
                                       const Transfer& transfer,
                                       const std::vector<Segment>& segments, std::byte* chunk,
                                       bool pack) {
  const Section& section = travel::section_of(optim, transfer);
  std::vector<launch::Move> moves;
  travel::for_each_part(transfer, segments, [&](int64_t at, const Segment& segment) {
    const auto index = static_cast<size_t>(segment.param);
    if (!memory.present.empty() && !memory.present[index]) return;
    std::byte* const place = chunk + bytes_of(at, optim.shared(section));
    std::byte* const values = optim.params[index].element(segment.first);
    moves.push_back(pack ? launch::Move{values, place, segment.count}
                         : launch::Move{place, values, segment.count});
  });
  return moves;
}

std::vector<Travel> make_reductions(const Optimizer& optim, const StepMemory& memory,
                                    const std::vector<std::vector<Segment>>& segments,
                                    Copies& copies) {
  std::vector<Travel> all;
  const bool in_place = travel::reduces_in_place(optim, memory);
  for (const Transfer& transfer : optim.plan.transfers(in_place)) {
    if (!travel::changes(memory, transfer, segments)) continue;
    Travel one{transfer, in_place, in_place && travel::goes_by_owner(optim, transfer), {}, {}};
    if (!in_place) one.pack = copies.add(packed_gradients(optim, memory, transfer, segments));
    all.push_back(one);
  }
  return all;
}

std::vector<Travel> make_gathers(const Optimizer& optim, const StepMemory& memory,
                                 const std::vector<std::vector<Segment>>& segments,
                                 Copies& copies) {
  std::vector<Travel> all;
  const bool in_place = travel::publishes_in_place(optim, memory);
  const auto own = static_cast<size_t>(optim.comm->rank());
  for (const Transfer& transfer : optim.plan.transfers(in_place)) {
    if (!travel::changes(memory, transfer, segments)) continue;
    Travel one{transfer, in_place, in_place && travel::goes_by_owner(optim, transfer), {}, {}};
    if (!in_place) {
      one.pack = copies.add(
          moved_params(optim, memory, transfer, segments[own], memory.send.data(), true));
      const size_t chunk =
          bytes_of(transfer.chunk, optim.shared(travel::section_of(optim, transfer)));
      std::vector<launch::Move> arrived;
      for (size_t rank = 0; rank < segments.size(); rank++) {
        if (rank == own) continue;
        const auto from = moved_params(optim, memory, transfer, segments[rank],
                                       memory.receive.data() + rank * chunk, false);
        arrived.insert(arrived.end(), from.begin(), from.end());
      }
      one.unpack = copies.add(arrived);
    }
    all.push_back(one);
  }
  return all;
}

/// By parameter, the gather that brings the last of it, or -1.
std::vector<int32_t> find_last_gathers(const Optimizer& optim,
                                       const std::vector<std::vector<Segment>>& segments,
                                       const std::vector<Travel>& gathers) {
  std::vector<int32_t> last(optim.params.size(), -1);
  for (size_t i = 0; i < gathers.size(); i++) {
    for (const std::vector<Segment>& of_rank : segments) {
      travel::for_each_part(gathers[i].transfer, of_rank, [&](int64_t, const Segment& segment) {
        last[static_cast<size_t>(segment.param)] = static_cast<int32_t>(i);
      });
    }
  }
  return last;
}

/// The moves of a section, behind those of the last one or of itself.
void add_moves(std::vector<Measured>& all, int32_t section, const launch::Move& move,
               Copies& copies) {
  const Range range = copies.add({move});
  if (all.empty() || all.back().section != section) {
    all.push_back({section, range, 0});
  } else {
    all.back().range.count += range.count;
  }
  all.back().elements += move.count;
}

/// This rank's own gradients of what it owns, as if they were the sums.
std::vector<Measured> take_own(const Optimizer& optim, const StepMemory& memory, Copies& copies) {
  std::vector<Measured> all;
  if (!memory.none) return all;
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    if (!is_floating(section.dtype)) continue;
    const std::byte* const grad = memory.grads[static_cast<size_t>(segment.param)];
    std::byte* const sums = (memory.adds ? memory.incoming : memory.reduced).data();
    add_moves(all, segment.section,
              {moved(grad, segment.first, section.grad_dtype), sums + section.sum_at(segment.share),
               segment.count},
              copies);
  }
  return all;
}

/// Gradients in no arena to where other ranks read them.
std::vector<Measured> stage(const Optimizer& optim, const StepMemory& memory, Copies& copies) {
  std::vector<Measured> all;
  if (reduces_alone(optim, memory) || memory.staging == nullptr) return all;
  for (const int64_t param : memory.foreign_grads) {
    const auto i = static_cast<size_t>(param);
    std::byte* const place = memory.staging->data() + memory.placements[i].grad.offset;
    add_moves(all, optim.plan.section_number(param),
              {memory.grads[i], place, optim.params[i].count}, copies);
  }
  return all;
}

/// Parameters in no arena from where their owners write them.
std::vector<Measured> pull(const Optimizer& optim, const StepMemory& memory, Copies& copies) {
  std::vector<Measured> all;
  for (const Pull& one : memory.pulls) {
    const size_t element = size_of(optim.plan.section(one.section).dtype);
    add_moves(all, one.section, {one.from, one.to, static_cast<int64_t>(one.bytes / element)},
              copies);
  }
  return all;
}

void add_classes(const Optimizer& optim, const StepMemory& memory, Blob& blob, Tables& tables) {
  std::vector<int64_t>& of_classes = tables.params_of_classes;
  for (const UpdateClass& cls : memory.classes) of_classes.push_back(cls.param);
  std::vector<int32_t> groups;
  for (const Param& param : optim.params) groups.push_back(param.group);
  std::vector<uint8_t> present;
  for (const bool one : memory.present) present.push_back(one ? 1 : 0);
  tables.class_params = blob.add<int64_t>(of_classes);
  tables.groups = blob.add<int32_t>(groups);
  tables.present = blob.add<uint8_t>(present);
  tables.classes = static_cast<uint32_t>(of_classes.size());
  tables.all_present = present.empty();
}

}  // namespace

launch::Format format_of(const Optimizer& optim, const Section& section, bool rounds) {
  const Rounding rounding = rounds ? optim.rounding_of(section) : Rounding{};
  const DType shared = optim.shared(section);
  return {.param = section.dtype,
          .grad = section.grad_dtype,
          .sum = section.sum(),
          .rounded = rounding.to,
          .divisor = rounding.divisor,
          .share = shared == section.dtype ? DType::none : shared,
          .master = optim.master_of(section)};
}

Tables make_tables(const Optimizer& optim, const StepMemory& memory) {
  Tables tables;
  tables.source_width = static_cast<uint32_t>(memory.source_width);
  tables.target_width = static_cast<uint32_t>(memory.target_width) - 1;
  Updates updates(optim, memory.runs);
  Copies copies;
  const std::vector<Section>& sections = optim.plan.sections();
  if (optim.comm->direct()) {
    for (size_t s = 0; s < sections.size(); s++)
      tables.batches.push_back(updates.add_batch(static_cast<int32_t>(s), 0, kMaxElements));
    tables.staged = stage(optim, memory, copies);
    tables.pulled = pull(optim, memory, copies);
  } else {
    const auto segments = travel::all_segments(optim);
    tables.reductions = make_reductions(optim, memory, segments, copies);
    tables.gathers = make_gathers(optim, memory, segments, copies);
    tables.last_gathers = std::make_shared<const std::vector<int32_t>>(
        find_last_gathers(optim, segments, tables.gathers));
    tables.own = take_own(optim, memory, copies);
    for (const Travel& gather : tables.gathers) {
      const Transfer& transfer = gather.transfer;
      tables.batches.push_back(
          updates.add_batch(transfer.section, transfer.share, transfer.share + transfer.chunk));
    }
  }
  Reductions reductions(optim, memory);
  tables.measured = std::move(reductions.measured);

  Blob blob;
  tables.runs = blob.add<launch::Run>(updates.runs);
  tables.tiles = blob.add<launch::Tile>(updates.tiles);
  tables.sources = blob.add<const std::byte*>(updates.sources);
  tables.reduced = blob.add<const std::byte*>(updates.reduced);
  tables.targets = blob.add<std::byte*>(updates.targets);
  tables.sums = blob.add<launch::Sums>(reductions.sums);
  tables.pieces = blob.add<launch::Piece>(reductions.pieces);
  tables.sum_sources = blob.add<const std::byte*>(reductions.sources);
  tables.sum_self = blob.add<const std::byte*>(reductions.self);
  tables.sum_incoming = blob.add<const std::byte*>(reductions.incoming);
  tables.moves = blob.add<launch::Move>(copies.moves);
  tables.move_tiles = blob.add<launch::Tile>(copies.tiles);
  add_classes(optim, memory, blob, tables);
  tables.bytes.assign(blob.bytes().begin(), blob.bytes().end());
  return tables;
}

}  // namespace zero::queued
