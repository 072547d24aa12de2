// SPDX-License-Identifier: Apache-2.0
// Arenas: rank 0 makes the memory and hands it out, every rank maps it and reserves its own part.
// Each step that can fail on one rank alone is voted, so that nobody waits for what will not come.
#include "comm/local/local_arena.h"

#include <algorithm>

#include "base/checked.h"
#include "base/text.h"
#include "comm/local/local.h"
#include "comm/local/wire.h"

namespace zero::local {
namespace {

constexpr size_t kReserveBytes = size_t{256} << 20;  // between two signs of progress

}  // namespace

Result<ArenaLayout> ArenaLayout::of(size_t bytes, int32_t kind, int32_t world) {
  ArenaLayout layout{bytes, 0, kind == ZERO_MEMORY_SHARED ? 1 : world};
  const auto padded = checked_add(bytes, kHugePage - 1);
  if (padded) layout.slice = *padded / kHugePage * kHugePage;
  const auto total = checked_multiply(layout.slice, static_cast<size_t>(layout.slices));
  if (!padded || !total || *total > static_cast<size_t>(INT64_MAX))
    return Status(ZERO_ERR_MEMORY, text("an arena of ", layout.slices, " times ", bytes, " bytes"));
  return layout;
}

Result<std::shared_ptr<Arena>> LocalComm::allocate(Call& call, size_t bytes, int32_t kind) {
  ++arena_attempts_;
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(bytes, kind, world()));  // the same on every rank
  Fd memory;
  Status made;
  if (rank() == 0) {
    made = check_available(bytes * static_cast<size_t>(layout.slices));
    if (made.ok()) {
      Result<Fd> created = create_segment("zero.arena", layout.total());
      if (created.ok()) memory = std::move(created).value();
      made = created.ok() ? Status() : std::move(created).status();
    }
    os().reached("arena.created");
  }
  ZERO_TRY(call.vote("arena made", made));

  if (rank() == 0) {
    ZERO_TRY(offer(memory.get(), layout.total()));
  } else {
    memory = ZERO_TRY(take_offer(layout.total()));
  }
  os().reached("arena.handed");
  std::shared_ptr<Mapping> mapping =
      ZERO_TRY(map_segment(memory.get(), layout.total(), Access::read_write));
  ZERO_TRY(reserve_part(memory.get(), *mapping, layout));
  os().reached("arena.reserved");

  // Numbered by attempts, which all ranks count alike, even where some fail.
  auto arena = std::make_shared<LocalArena>(shared_from_this(), arena_attempts_, std::move(mapping),
                                            layout, kind, rank());
  const std::lock_guard lock(arenas_mutex_);
  arenas_.resize(arena_attempts_);
  arenas_[arena_attempts_ - 1] = arena;
  return std::shared_ptr<Arena>(std::move(arena));
}

/// Rank 0: the memory to every rank. A connection that fails breaks the comm: the others wait for
/// it.
Status LocalComm::offer(int memory, size_t bytes) {
  const local::Patience where{operation_name(Operation::arena_alloc), "hand out",
                              options().timeout_ms, false};
  ArenaOffer message;
  message.attempt = arena_attempts_;
  message.bytes = bytes;
  for (int32_t r = 1; r < world(); ++r) {
    const Status sent = send_message(connections_[static_cast<size_t>(r)].get(),
                                     as_message(message), {&memory, 1}, vigil(where));
    os().reached("arena.offered");
    if (sent.ok()) continue;
    ZERO_TRY(control_->check(where));  // a dead process closes its end: its death is the cause
    Failure cause;
    cause.code = ZERO_ERR_COMM;
    cause.rank = r;
    cause.step = steps_done.load();
    cause.phase = text(where.operation, ": ", where.phase);
    cause.text = text(cause.phase, ": memory could not be handed to rank ", r, ": ", sent.text());
    control_->abort(cause);
    return control_->failure_status();
  }
  return {};
}

Result<Fd> LocalComm::take_offer(size_t bytes) {
  const local::Patience where{operation_name(Operation::arena_alloc), "hand out",
                              options().timeout_ms, false};
  for (;;) {
    MessageBuffer buffer;
    std::vector<Fd> descriptors;
    buffer.got =
        ZERO_TRY(receive_message(connections_[0].get(), buffer.bytes, &descriptors, vigil(where)));
    ArenaOffer offered;
    if (!buffer.read(&offered) || descriptors.size() != 1 || offered.attempt > arena_attempts_)
      return Status(ZERO_ERR_COMM, "rank 0 sent something that is no arena");
    if (offered.attempt < arena_attempts_) continue;  // of an attempt that failed here
    ZERO_TRY(check_segment(descriptors[0].get(), bytes));
    return std::move(descriptors[0]);
  }
}

/// This rank's own slice, or its part of the one copy.
Status LocalComm::reserve_part(int memory, const Mapping& mapping, const ArenaLayout& layout) {
  const size_t ranks = static_cast<size_t>(world());
  const size_t me = static_cast<size_t>(rank());
  size_t first = me * layout.slice;
  size_t end = first + layout.bytes;
  if (layout.slices == 1) {
    const size_t part = round_up((layout.bytes + ranks - 1) / ranks, kHugePage);
    first = std::min(me * part, layout.bytes);
    end = std::min(first + part, layout.bytes);
  }
  for (; first < end; first += kReserveBytes) {
    ZERO_TRY(reserve(memory, mapping, first, std::min(kReserveBytes, end - first)));
    control_->note_progress();
  }
  return {};
}

Vigil LocalComm::vigil(const local::Patience& where) {
  return {now_ns() + where.limit_ms * 1'000'000, [this, where] { return control_->check(where); }};
}

// ---- Addresses.

Location LocalComm::locate(const void* data, size_t bytes) const {
  bool whole = false;
  const std::shared_ptr<Arena> arena = find_arena(data, bytes, this, &whole);
  if (!arena || !whole || arena->comm().get() != this) return {};
  const auto offset = static_cast<const std::byte*>(data) - arena->data();
  return {.arena = arena->number(), .unused = 0, .offset = static_cast<uint64_t>(offset)};
}

Result<std::byte*> LocalComm::resolve(int32_t rank, const Location& location, size_t bytes) const {
  const std::shared_ptr<LocalArena> arena = find(location);
  if (!arena)
    return Status(ZERO_ERR_STATE, text("rank ", rank, " named arena ", location.arena,
                                       ", which is gone on rank ", this->rank()));
  if (rank < 0 || rank >= world() || location.offset > arena->bytes() ||
      bytes > arena->bytes() - location.offset)
    return Status(ZERO_ERR_ARGUMENT,
                  text("rank ", rank, " named ", bytes, " bytes at ", location.offset, " of arena ",
                       location.arena, ", which has ", arena->bytes()));
  return arena->data_of(rank) + location.offset;
}

std::shared_ptr<Arena> LocalComm::arena(const Location& location) const { return find(location); }

std::shared_ptr<LocalArena> LocalComm::find(const Location& location) const {
  const std::lock_guard lock(arenas_mutex_);
  if (location.arena == 0 || location.arena > arenas_.size()) return nullptr;
  return arenas_[location.arena - 1].lock();
}

}  // namespace zero::local
