// SPDX-License-Identifier: Apache-2.0
#include "step/queued/tables.h"

#include <algorithm>

#include "step/norm.h"

namespace zero::queued {
namespace {

using launch::kTileElements;
using travel::moved;
using Addresses = std::vector<const std::byte*>;

void add_tiles(std::vector<launch::Tile>& tiles, size_t of, int64_t count) {
  for (int64_t at = 0; at < count; at += kTileElements)
    tiles.push_back({static_cast<uint32_t>(of), static_cast<uint32_t>(at / kTileElements)});
}

Range range_from(size_t first, size_t end) {
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(end - first)};
}

/// The runs of all batches, with their addresses and tiles.
struct Updates {
  const Optimizer& optim;
  const Runs& all;
  std::vector<launch::RunRow> runs{};
  std::vector<launch::Tile> tiles{};
  Addresses sources{}, reduced{};
  std::vector<std::byte*> targets{};

  /// Adds a batch with the elements of a section at share positions [begin, end).
  Part add_batch(int32_t section, int64_t begin, int64_t end) {
    const size_t first_tile = tiles.size();
    int64_t elements = 0;
    for (size_t r = 0; r < all.runs.size(); r++) {
      const Segment& segment = all.runs[r].segment;
      const int64_t from = std::max(segment.share, begin);
      const int64_t count = std::min(segment.share + segment.count, end) - from;
      if (segment.section != section || count <= 0) continue;
      add_tiles(tiles, runs.size(), count);
      add(r, from, count);
      elements += count;
    }
    return {section, range_from(first_tile, tiles.size()), elements};
  }

  /// Adds `count` elements of run `r`, from position `share` of the share on.
  void add(size_t r, int64_t share, int64_t count) {
    const Run& run = all.runs[r];
    const int64_t skipped = share - run.segment.share;
    const Section& section = optim.plan.section(run.segment.section);
    const auto to = all.targets[r];
    launch::RunRow added{.param = moved(to[0], skipped, section.dtype),
                         .kept = optim.slot(kMasterSlot, run.segment.section, share),
                         .slots = {},
                         .count = count,
                         .random_at = optim.random_at(run.segment) + skipped,
                         .pointers = static_cast<uint32_t>(runs.size()),
                         .cls = run.cls};
    const auto slots = static_cast<int>(optim.rule_of(section).slots.size());
    for (int slot = 0; slot < slots; slot++)
      added.slots[slot] = optim.slot(slot, run.segment.section, share);
    runs.push_back(added);
    for (const std::byte* const from : all.sources[r])
      sources.push_back(moved(from, skipped, section.grad_dtype));
    reduced.push_back(moved(run.reduced, skipped, section.sum()));
    for (std::byte* const other : to.subspan(1))
      targets.push_back(moved(other, skipped, section.dtype));
  }
};

/// The sums of views with a gradient: their addresses, sources and pieces.
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
      const auto row = memory.sources[v];
      sources.insert(sources.end(), row.begin(), row.end());
      for_each_piece(optim.plan, view.segment, [&](int64_t first, int64_t count) {
        pieces.push_back({number, static_cast<uint32_t>(count), first});
      });
      measured.back().elements += view.segment.count;
      measured.back().range.count =
          static_cast<uint32_t>(pieces.size()) - measured.back().range.first;
    }
  }

  std::vector<launch::Sums> sums;
  std::vector<launch::PieceRow> pieces;
  Addresses sources, self, incoming;
  std::vector<Part> measured;
};

/// Returns transfers with the tiles of their moves.
std::vector<Travel> queued_travels(const Optimizer& optim, std::vector<travel::Travel> all,
                                   Copies& copies) {
  std::vector<Travel> queued;
  for (travel::Travel& one : all) {
    one.by_owner = travel::goes_by_owner(optim, one);
    const Range packed = copies.add(one.pack), unpacked = copies.add(one.unpack);
    queued.push_back({std::move(one), packed, unpacked});
  }
  return queued;
}

/// Returns, by parameter, the index of the gather that completes it, or -1 if there is none.
std::vector<int32_t> find_last_gathers(const Optimizer& optim, const std::vector<Travel>& gathers) {
  const auto segments = travel::all_segments(optim);
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

/// Adds moves, and returns their tiles by section.
std::vector<Part> by_section(const std::vector<SectionMove>& moves, Copies& copies) {
  std::vector<Part> all;
  for (const auto& [section, move] : moves) {
    const Range range = copies.add({move});
    if (all.empty() || all.back().section != section) {
      all.push_back({section, range, move.count});
    } else {
      all.back().range.count += range.count;
      all.back().elements += move.count;
    }
  }
  return all;
}

/// Returns the moves of gradients in no arena to staging.
std::vector<SectionMove> staged_gradients(const Optimizer& optim, const StepMemory& memory) {
  std::vector<SectionMove> all;
  if (reduces_alone(optim, memory) || memory.staging == nullptr) return all;
  for (const int64_t param : memory.foreign_grads) {
    const auto i = static_cast<size_t>(param);
    std::byte* const place = memory.staging->data() + memory.placements[i].grad.offset;
    all.push_back(
        {optim.plan.section_number(param), {memory.grads[i], place, optim.params[i].count}});
  }
  return all;
}

void add_classes(const Optimizer& optim, const StepMemory& memory, Blob& blob, Tables& tables) {
  tables.params_of_classes = memory.classes;
  std::vector<int32_t> groups, rules_of_groups, rules_of_classes;
  for (const Param& param : optim.params) groups.push_back(param.group);
  for (const Group& group : optim.groups) rules_of_groups.push_back(group.rule->number);
  for (const int64_t param : memory.classes)
    rules_of_classes.push_back(optim.rule_of(optim.param(param)).number);
  std::vector<uint8_t> present;
  for (const bool one : memory.present) present.push_back(one ? 1 : 0);
  tables.class_params = blob.add<int64_t>(memory.classes);
  tables.groups = blob.add<int32_t>(groups);
  tables.group_rules = blob.add<int32_t>(rules_of_groups);
  tables.class_rules = blob.add<int32_t>(rules_of_classes);
  tables.present = blob.add<uint8_t>(present);
  tables.classes = static_cast<uint32_t>(memory.classes.size());
  tables.all_present = present.empty();
}

}  // namespace

Range Copies::add(const std::vector<launch::Move>& added) {
  const size_t first = tiles.size();
  for (const launch::Move& move : added) {
    add_tiles(tiles, moves.size(), move.count);
    moves.push_back(move);
  }
  return range_from(first, tiles.size());
}

launch::Format format_of(const Optimizer& optim, const Section& section, bool rounds) {
  const Rounding rounding = rounds ? optim.rounding_of(section) : Rounding{};
  const DType shared = optim.shared(section);
  return {.param = section.dtype,
          .grad = section.grad_dtype,
          .sum = section.sum(),
          .rounded = rounding.to,
          .divisor = rounding.divisor,
          .share = shared == section.dtype ? DType::none : shared,
          .master = optim.master_of(section),
          .slots = optim.slot_format(section)};
}

Tables make_tables(const Optimizer& optim, const StepMemory& memory) {
  Tables tables;
  tables.source_width = static_cast<uint32_t>(memory.sources.width);
  tables.target_width = static_cast<uint32_t>(memory.targets.width) - 1;
  Updates updates{optim, memory.runs};
  Copies copies;
  const std::vector<Section>& sections = optim.plan.sections();
  if (optim.comm->direct()) {
    for (size_t s = 0; s < sections.size(); s++)
      tables.batches.push_back(updates.add_batch(static_cast<int32_t>(s), 0, kMaxElements));
    tables.staged = by_section(staged_gradients(optim, memory), copies);
    tables.pulled = by_section(memory.pulls, copies);
  } else {
    tables.reductions = queued_travels(optim, travel::reductions(optim, memory), copies);
    tables.gathers = queued_travels(optim, travel::gathers(optim, memory), copies);
    tables.last_gathers =
        std::make_shared<const std::vector<int32_t>>(find_last_gathers(optim, tables.gathers));
    if (memory.none) tables.own = by_section(travel::own_gradients(optim, memory), copies);
    for (const Travel& gather : tables.gathers) {
      const Transfer& transfer = gather.transfer;
      tables.batches.push_back(
          updates.add_batch(transfer.section, transfer.share, transfer.share + transfer.chunk));
    }
  }
  Reductions reductions(optim, memory);
  tables.measured = std::move(reductions.measured);

  Blob blob;
  tables.runs = blob.add<launch::RunRow>(updates.runs);
  tables.tiles = blob.add<launch::Tile>(updates.tiles);
  tables.sources = blob.add<const std::byte*>(updates.sources);
  tables.reduced = blob.add<const std::byte*>(updates.reduced);
  tables.targets = blob.add<std::byte*>(updates.targets);
  tables.sums = blob.add<launch::Sums>(reductions.sums);
  tables.pieces = blob.add<launch::PieceRow>(reductions.pieces);
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
