// SPDX-License-Identifier: Apache-2.0
// Creates arenas. In host memory, rank 0 creates an arena and sends it to the other ranks. Every
// rank maps it and reserves its own part. Ranks vote after each step that can fail on a single
// rank, so that no rank waits in vain.
#include "comm/local/arena.h"

#include <algorithm>

#include "base/checked.h"
#include "base/text.h"
#include "comm/local/local.h"
#include "comm/memory_check.h"

namespace zero::local {

Result<ArenaLayout> ArenaLayout::of(size_t bytes, int32_t kind, int32_t world) {
  ArenaLayout layout{bytes, 0, kind == ZERO_MEMORY_SHARED ? 1 : world};
  const auto padded = checked_add(bytes, kHugePage - 1);
  if (padded) layout.slice = *padded / kHugePage * kHugePage;
  const auto total = checked_multiply(layout.slice, static_cast<size_t>(layout.slices));
  if (!padded || !total || *total > static_cast<size_t>(INT64_MAX))
    return Status(ZERO_ERR_MEMORY,
                  text("an arena of ", layout.slices, " times ", bytes, " bytes is too large"));
  return layout;
}

/// A part of the single copy begins at a huge page.
ArenaLayout::Part ArenaLayout::part_of(int32_t rank, int32_t world) const {
  const auto me = static_cast<size_t>(rank), ranks = static_cast<size_t>(world);
  if (slices > 1) return {me * slice, bytes};
  const size_t part = round_up((bytes + ranks - 1) / ranks, kHugePage);
  const size_t first = std::min(me * part, bytes);
  return {first, std::min(part, bytes - first)};
}

Result<std::shared_ptr<Arena>> LocalComm::allocate(Call& call, uint32_t number, size_t bytes,
                                                   int32_t kind, Side side) {
  if (device() != nullptr && side == Side::device)
    return staged_ == nullptr ? make_device_arena(call, number, bytes, kind)
                              : Comm::allocate(call, number, bytes, kind, side);
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(bytes, kind, world()));  // the same on every rank
  std::shared_ptr<Mapping> mapping = ZERO_TRY(map_on_all(call, number, layout));
  return std::shared_ptr<Arena>(
      std::make_shared<LocalArena>(shared_from_this(), number, std::move(mapping), layout, kind));
}

Result<std::shared_ptr<Mapping>> LocalComm::map_on_all(Call& call, uint32_t number,
                                                       const ArenaLayout& layout) {
  ZERO_TRY(check_memory_of_ranks(call, layout.part_of(rank(), world()).size, "an arena"));
  Result<Fd> made = rank() == 0 ? create_segment("zero.arena", layout.total()) : Fd();
  if (rank() == 0) os().reached("arena.created");
  Fd memory = ZERO_TRY(call.vote("arena made", std::move(made)));

  if (rank() == 0) {
    const int offered = memory.get();
    ZERO_TRY(offer_to_all(number, {&offered, 1}));
  } else {
    Result<std::vector<Fd>> offered = take_offer(0, number, 1);
    if (offered.failure().code() == ZERO_ERR_TIMEOUT) {  // a vote would wait for it once more
      const Patience where = handing_out();
      control_->abort(
          control_->make_failure(ZERO_ERR_TIMEOUT, 0, where, Watch(where).late(name_of(0))));
      return control_->failure_status();
    }
    memory = std::move(ZERO_TRY(std::move(offered)).front());
    ZERO_TRY(check_segment(memory.get(), layout.total()));
  }
  os().reached("arena.handed");
  std::shared_ptr<Mapping> mapping =
      ZERO_TRY(map_segment(memory.get(), layout.total(), Access::shown));
  ZERO_TRY(reserve_part(memory.get(), *mapping, layout));
  os().reached("arena.reserved");
  return mapping;
}

/// Creates an arena in device memory. Each rank creates its own part, and rank 0 sends all parts to
/// all ranks.
Result<std::shared_ptr<Arena>> LocalComm::make_device_arena(Call& call, uint32_t number,
                                                            size_t bytes, int32_t kind) {
  Fd created = ZERO_TRY(call.vote("arena made", device()->create_shared(bytes, "an arena")));
  std::vector<Fd> all;
  if (rank() == 0) {
    all.push_back(std::move(created));
    for (int32_t r = 1; r < world(); ++r) {
      Result<std::vector<Fd>> offered = take_offer(static_cast<size_t>(r), number, 1);
      if (!offered.ok()) return not_handed(r, offered.failure());
      all.push_back(std::move(offered->front()));
    }
    std::vector<int> numbers;
    for (const Fd& fd : all) numbers.push_back(fd.get());
    ZERO_TRY(offer_to_all(number, numbers));
  } else {
    const int own = created.get();
    ZERO_TRY(offer(0, number, {&own, 1}));
    all = ZERO_TRY(take_offer(0, number, static_cast<size_t>(world())));
  }
  os().reached("arena.handed");
  std::vector<SharedBlock> blocks;
  for (size_t r = 0; r < all.size(); ++r) {
    const std::string what = text("rank ", r, "'s memory");
    blocks.push_back(ZERO_TRY(map_shared(device(), all[r].get(), bytes, what)));
  }
  ZERO_TRY(clear(device(), blocks[static_cast<size_t>(rank())].data(), bytes, "an arena"));
  return std::shared_ptr<Arena>(
      std::make_shared<LocalArena>(shared_from_this(), number, std::move(blocks), bytes, kind));
}

Patience LocalComm::handing_out() const {
  return {operation_name(Operation::arena_alloc), "hand out", options().timeout_ms, false};
}

/// Breaks the comm after a connection has failed, because the other ranks wait for it.
Status LocalComm::not_handed(int32_t rank, const Status& why) {
  const Patience where = handing_out();
  ZERO_TRY(control_->check(where));  // a death closes the connection, and is then the cause
  control_->abort(steps.fail(ZERO_ERR_COMM, rank, where.where(),
                             text(where.where(), ": memory could not be passed to or from rank ",
                                  rank, ": ", why.text())));
  return control_->failure_status();
}

Bounds LocalComm::handing_out_bounds() {
  return {options().timeout_ms, [this] { return control_->check(handing_out()); }};
}

Status LocalComm::offer(int32_t rank, uint32_t number, std::span<const int> memory) {
  Link& link = *links_[static_cast<size_t>(rank)];
  link.send(FrameKind::arena, number, {}, memory);
  const Status sent = deliver(link, handing_out_bounds());
  return sent.ok() ? Status() : not_handed(rank, sent);
}

Status LocalComm::offer_to_all(uint32_t number, std::span<const int> memory) {
  for (int32_t r = 1; r < world(); ++r) {
    ZERO_TRY(offer(r, number, memory));
    os().reached("arena.offered");
  }
  return {};
}

Result<std::vector<Fd>> LocalComm::take_offer(size_t link, uint32_t number, size_t count) {
  for (;;) {
    Frame offered = ZERO_TRY(hear(*links_[link], handing_out_bounds()));
    if (offered.kind != FrameKind::arena || offered.descriptors.size() != count ||
        offered.sequence > number)
      return Status(ZERO_ERR_COMM, text("rank ", link, " sent something that is not an arena"));
    if (offered.sequence < number) continue;  // from an attempt that failed on this rank
    return std::move(offered.descriptors);
  }
}

/// Reserves this rank's own slice, or its part of the single copy.
Status LocalComm::reserve_part(int memory, const Mapping& mapping, const ArenaLayout& layout) {
  auto [first, size] = layout.part_of(rank(), world());
  const size_t end = first + size;
  constexpr size_t kReserveBytes = size_t{256} << 20;  // between two progress reports
  for (; first < end; first += kReserveBytes) {
    ZERO_TRY(reserve(memory, mapping, first, std::min(kReserveBytes, end - first)));
    control_->note_progress();
  }
  return {};
}

// ---- Addresses.

Result<std::byte*> LocalComm::resolve(int32_t rank, const Location& location, size_t bytes) const {
  const auto arena =
      direct() ? std::static_pointer_cast<LocalArena>(this->arena(location)) : nullptr;
  if (!arena)
    return Status(ZERO_ERR_STATE, text("rank ", rank, " named arena ", location.arena,
                                       ", which no longer exists on rank ", this->rank()));
  if (rank < 0 || rank >= world() || location.offset > arena->bytes() ||
      bytes > arena->bytes() - location.offset)
    return Status(ZERO_ERR_ARGUMENT,
                  text("rank ", rank, " named ", bytes, " bytes at ", location.offset, " of arena ",
                       location.arena, ", which has ", arena->bytes()));
  return arena->data_of(rank) + location.offset;
}

}  // namespace zero::local
