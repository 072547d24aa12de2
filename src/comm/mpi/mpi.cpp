// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi.h"

#include <algorithm>
#include <cstring>

#include "base/keep.h"
#include "base/text.h"
#include "comm/tcp/rendezvous.h"

namespace zero::mpi {
namespace {

constexpr size_t kRoomBytes = 4u << 20;   // of all ranks together, in one direction
constexpr size_t kLeastPartBytes = 4096;  // of one rank
constexpr int64_t kWitnessMs = 200;       // for a dead rank's connection to end as well

}  // namespace

MpiComm::~MpiComm() {
  bool pending = false;
  for (Room& room : rooms_) {
    if (!room.pending) continue;
    pending = true;
    keep_for_ever(std::move(room));
  }
  const auto state = pending ? Duplicate::pending : aborted() ? Duplicate::broken : Duplicate::idle;
  if (duplicate_ != nullptr) duplicate_->state = state;
  for (const Travellers& some : some_) some.own->state = state;
}

Status check_thread(const Library& library) {
  mpi_level level = MPI_LEVEL_FUNNELED;
  int is_main = 0;
  ZERO_TRY(outcome(library, "MPI_Query_thread", library.calls->thread(&level, &is_main)));
  if (level != MPI_LEVEL_FUNNELED || is_main != 0) return {};
  return Status(ZERO_ERR_STATE,
                "this is not the thread that initialized MPI, and MPI allows calls from no other: "
                "ask MPI_Init_thread for MPI_THREAD_SERIALIZED or more");
}

Status MpiComm::check_caller() {
  ZERO_TRY(check_running(library_));
  return check_thread(library_);
}

/// MPI may not have sent all yet of what has ended here, and others wait for that.
void MpiComm::heed_interrupt(std::string_view where) {
  if (caller_.load() == std::this_thread::get_id() && duplicate_ != nullptr)
    (void)library_.calls->progress(duplicate_->handle);
  Comm::heed_interrupt(where);
}

// ---- The data plane.

size_t MpiComm::part_bytes(int32_t ranks) const {
  return std::max(kRoomBytes / static_cast<size_t>(ranks) / 64 * 64, kLeastPartBytes);
}

Status MpiComm::open(Duplicate& own) {
  duplicate_ = &own;
  // A part for some ranks has room here, too.
  const size_t bytes = std::max(part_bytes(world()) * static_cast<size_t>(world()), kRoomBytes);
  for (Room& room : rooms_) {
    room.send = ZERO_TRY(Memory::allocate(nullptr, bytes, "what travels over MPI"));
    room.recv = ZERO_TRY(Memory::allocate(nullptr, bytes, "what travels over MPI"));
  }
  return {};
}

Bounds MpiComm::bounds() {
  return {options().timeout_ms, [this] { return TcpComm::check(); }};
}

/// Breaks the comm. It first waits a little, because what MPI calls an error may be the death of a
/// rank, whose connection soon tells which.
Status MpiComm::broken(Status problem, std::string_view phase) {
  for (const Deadline deadline(kWitnessMs);
       problem.code() == ZERO_ERR_COMM && !deadline.passed();) {
    ZERO_TRY(TcpComm::check());
    // Wait: a slice of kWitnessMs.
    sleep_ms(1);
  }
  const std::string where(phase);
  abort(
      steps.fail(problem.code(), -1, where, text(where, ": rank ", rank(), ": ", problem.text())));
  return failure_status();
}

/// Moves `bytes` of each rank in parts, of which two are on their way at a time: pack(to, at, part)
/// puts them where MPI takes them, unpack(from, at, part) uses what has come.
template <class Pack, class Unpack>
Status MpiComm::move(Call& call, const char* what, Begin begin, const Travellers& among,
                     size_t bytes, const Pack& pack, const Unpack& unpack) {
  const Patience patience{operation_name(call.operation()), what, options().timeout_ms, true};
  if (aborted()) return failure_status();
  caller_ = std::this_thread::get_id();
  const size_t most = part_bytes(among.ranks.count), parts = (bytes + most - 1) / most;
  const auto in_part = [&](size_t part) { return std::min(most, bytes - part * most); };
  for (size_t begun = 0, ended = 0; ended < parts; ++ended) {
    for (; begun < std::min(parts, ended + rooms_.size()); ++begun) {
      Room& room = rooms_[begun % rooms_.size()];
      pack(room.send.data(), begun * most, in_part(begun));
      Status started =
          outcome(library_, what,
                  begin(room.send.data(), room.recv.data(), static_cast<int>(in_part(begun)),
                        among.own->handle, &room.request));
      if (!started.ok()) return broken(std::move(started), patience.where());
      room.pending = true;
    }
    Room& room = rooms_[ended % rooms_.size()];
    Status done = await(library_, what, room.request, bounds());
    if (aborted()) return failure_status();
    if (!done.ok()) return broken(std::move(done), patience.where());
    room.pending = false;
    unpack(room.recv.data(), ended * most, in_part(ended));
  }
  return {};
}

Status MpiComm::gather(Call& call, const Travellers& among, const void* send, void* recv,
                       size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(send);
  auto* const to = static_cast<std::byte*>(recv);
  return move(
      call, "all_gather", library_.calls->all_gather, among, bytes,
      [&](std::byte* room, size_t at, size_t part) { std::memcpy(room, from + at, part); },
      [&](const std::byte* room, size_t at, size_t part) {
        for (size_t r = 0; r < static_cast<size_t>(among.ranks.count); ++r)
          std::memcpy(to + r * bytes + at, room + r * part, part);
      });
}

Status MpiComm::all_gather(Call& call, const void* send, void* recv, size_t bytes) {
  return gather(call, everyone(), send, recv, bytes);
}

Status MpiComm::gather_some(Call& call, const Ranks& among, const std::byte* send, std::byte* recv,
                            size_t bytes, std::span<std::byte>) {
  return gather(call, ZERO_TRY(travellers(call, among)), send, recv, bytes);
}

/// Splits the communicator when such ranks travel first, which all ranks do in the same call.
Result<MpiComm::Travellers> MpiComm::travellers(Call& call, const Ranks& ranks) {
  const auto known = std::ranges::find(some_, ranks, &Travellers::ranks);
  if (known != some_.end()) return *known;
  ZERO_TRY(call.vote("split", Status()));
  mpi_handle made = 0;
  // MPI has no split that can be watched. All ranks are there, as they have voted.
  const Status split =
      outcome(library_, "MPI_Comm_split",
              library_.calls->split(duplicate_->handle, ranks.first, rank(), &made));
  if (!split.ok()) return broken(split, "all_gather");
  some_.push_back({ranks, ZERO_TRY(keep(library_, made))});
  return some_.back();
}

Status MpiComm::reduce_scatter(Call& call, SumTypes types, const void* send, void* recv,
                               size_t count, void*) {
  const size_t element = size_of(types.from), bytes = count * element;
  const auto* const from = static_cast<const std::byte*>(send);
  auto* const sums = static_cast<std::byte*>(recv);
  return move(
      call, "all_to_all", library_.calls->all_to_all, everyone(), bytes,
      [&](std::byte* room, size_t at, size_t part) {
        for (size_t r = 0; r < static_cast<size_t>(world()); ++r)
          std::memcpy(room + r * part, from + r * bytes + at, part);
      },
      [&](const std::byte* room, size_t at, size_t part) {
        sum_(types, room, sums + at / element * size_of(types.sum), part / element);
      });
}

// ---- Children.

Result<std::shared_ptr<Comm>> MpiComm::make_child(Call& call, std::span<const int32_t> members,
                                                  int32_t place, int32_t color) {
  ZERO_TRY(check_caller());
  const bool root = !members.empty() && place == 0;
  const tcp::Root listens =
      ZERO_TRY(call.vote("child", root ? tcp::listen() : Result<tcp::Root>(tcp::Root())));
  const std::vector<tcp::Offer> offers = ZERO_TRY(call.exchange("offers", listens.offer));
  mpi_handle made = 0;
  // MPI has no split that can be watched. All ranks are there, as they have voted.
  const Status split = outcome(library_, "MPI_Comm_split",
                               library_.calls->split(duplicate_->handle, color, place, &made));
  if (!split.ok()) return broken(split, "zero_comm_split");
  if (members.empty()) return std::shared_ptr<Comm>();
  Duplicate* const own = ZERO_TRY(keep(library_, made));
  const auto child_world = static_cast<int32_t>(members.size());
  const Bounds bounds{options().rendezvous_ms, [this] { return TcpComm::check(); }};
  const std::shared_ptr<MpiComm> child = ZERO_TRY(take_seat(
      library_, place, child_world, options(),
      root ? tcp::seat_guests(listens, child_world, bounds)
           : tcp::visit(offers[static_cast<size_t>(members[0])], place, child_world, bounds)));
  ZERO_TRY(child->open(*own));
  return std::shared_ptr<Comm>(child);
}

}  // namespace zero::mpi
