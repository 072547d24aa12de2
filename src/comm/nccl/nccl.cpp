// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace zero::nccl {
namespace {

constexpr int64_t kWitnessMs = 200;  // until a dead rank's connection ends as well
constexpr int64_t kLeaveMs = 2'000;  // for a communicator to release an arena
constexpr size_t kGroup = 256;       // most calls in one NCCL group

int type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFloat32;
    case DType::f64:
      return kFloat64;
    case DType::f16:
      return kFloat16;
    case DType::bf16:
      return kBfloat16;
    default:
      return -1;
  }
}

int type_of(const SumTypes& types) { return types.from == types.sum ? type_of(types.sum) : -1; }

/// Registers `arena` as a window for `channel`, so that NCCL accesses it in place. Collective over
/// its ranks, which have arenas of the same size. The arena deregisters the window before it frees
/// its memory. Returns OK even if NCCL has no windows here, because they are optional.
Status open_window(const Library& library, Channel& channel, PrivateArena& arena,
                   const Bounds& bounds) {
  Slot<Window> slot;
  ZERO_TRY(channel.run("ncclCommWindowRegister", bounds, [&](Handle handle) {
    return library.window_register(handle, arena.data(), arena.bytes(), slot.place(), kSymmetric);
  }));
  const Window window = slot.take();
  if (window == nullptr) {
    log(ZERO_LOG_INFO, text("NCCL ", version_text(library.version),
                            " has no windows on these GPUs: transfers go through its buffers"));
    return {};
  }
  // A communicator that has ended has no windows. While one has this window, the address must not
  // be reused, because NCCL would mistake other memory for it. The comm outlives its arenas.
  arena.attach([&library, &channel, window] {
    const bool left = succeeds([&] {
      return channel.run_alone(
          kLeaveMs, [&](Handle handle) { return library.window_deregister(handle, window); });
    });
    if (!left) log(ZERO_LOG_WARNING, "NCCL did not release an arena: its memory is leaked");
    return left;
  });
  return {};
}

Status cannot_sum() {
  return {ZERO_ERR_INTERNAL, "NCCL sums only floating-point types, each in its own type"};
}

}  // namespace

NcclComm::~NcclComm() { (void)channels_->end(aborted()); }

// ---- Failures.

/// Ends the communicators, because work of an aborted comm must not block the device's queues.
void NcclComm::end_channels() {
  if (!channels_->end(true)) left_behind_ = true;
}

void NcclComm::abort(const Failure& cause) {
  TcpComm::abort(cause);
  end_channels();
}

Failure NcclComm::failure() const {
  Failure failure = TcpComm::failure();
  if (left_behind_)
    failure.text +=
        "; NCCL did not return from destroying its communicators: they are leaked, "
        "and the device's queues may hang";
  return failure;
}

Status NcclComm::told(Status status) {
  if (aborted()) end_channels();
  return status;
}

Status NcclComm::check() {
  ZERO_TRY(told(TcpComm::check()));
  for (Channel* const channel : {&channels_->reduce(), &channels_->gather()})
    if (Status error = channel->error(); !error.ok())
      return broken(std::move(error), "queued work");
  return {};
}

/// Breaks the comm. If NCCL blames another rank, first waits briefly, because that rank's
/// connection may soon show which rank it is.
Status NcclComm::broken(Status problem, std::string_view phase) {
  const bool remote = problem.code() == ZERO_ERR_PEER_DEAD;
  for (const Deadline deadline(kWitnessMs); remote && !deadline.passed();) {
    ZERO_TRY(told(TcpComm::check()));
    // Wait: a slice of kWitnessMs.
    os().poll(nullptr, 0, 1);
  }
  abort(steps.fail(remote ? ZERO_ERR_COMM : problem.code(), -1, std::string(phase),
                   text("rank ", rank(), ": ", problem.text())));
  return failure_status();
}

// ---- The data plane.

Bounds NcclComm::bounds() {
  return {options().timeout_ms, [this] { return TcpComm::check(); }};
}

Status NcclComm::queue(Channel& channel, const char* what, const std::function<int(Handle)>& call) {
  if (aborted()) return failure_status();
  Status status = channel.run(what, bounds(), call);
  if (status.ok()) return {};
  if (aborted()) return told(failure_status());
  return broken(std::move(status), what);
}

template <class One, class Call>
Status NcclComm::queue_all(Channel& channel, const char* what, std::span<const One> all,
                           const Call& call) {
  for (size_t begin = 0; begin < all.size(); begin += kGroup) {
    const std::span<const One> group = all.subspan(begin, std::min(kGroup, all.size() - begin));
    if (group.size() == 1) {
      ZERO_TRY(queue(channel, what, [&](Handle handle) { return call(handle, group[0]); }));
      continue;
    }
    ZERO_TRY(queue(channel, what, [&](Handle handle) {
      int worst = library_.group_start();
      for (const One& one : group)
        if (worst == kSuccess || worst == kInProgress) worst = call(handle, one);
      const int ended = library_.group_end();  // always, because the group belongs to the thread
      return worst == kSuccess || worst == kInProgress ? ended : worst;
    }));
  }
  return {};
}

Status NcclComm::reduce_scatter(std::span<const Scattered> all, void* stream) {
  for (const Scattered& one : all)
    if (type_of(one.types) < 0) return cannot_sum();
  const auto call = [&](Handle handle, const Scattered& one) {
    return library_.reduce_scatter(one.send, one.recv, one.count, type_of(one.types), kSum, handle,
                                   stream);
  };
  return queue_all(channels_->reduce(), "ncclReduceScatter", all, call);
}

Status NcclComm::reduce(SumTypes types, std::span<const Summed> all, void* stream) {
  const int type = type_of(types);
  if (type < 0) return cannot_sum();
  const auto call = [&](Handle handle, const Summed& one) {
    return library_.reduce(one.send, one.recv, one.count, type, kSum, one.root, handle, stream);
  };
  return queue_all(channels_->reduce(), "ncclReduce", all, call);
}

Status NcclComm::all_gather(std::span<const Gathered> all, void* stream) {
  const auto call = [&](Handle handle, const Gathered& one) {
    return library_.all_gather(one.send, one.recv, one.bytes, kUint8, handle, stream);
  };
  return queue_all(channels_->gather(), "ncclAllGather", all, call);
}

Status NcclComm::broadcast(std::span<const Sent> all, void* stream) {
  const auto call = [&](Handle handle, const Sent& one) {
    return library_.broadcast(one.data, one.data, one.bytes, kUint8, one.root, handle, stream);
  };
  return queue_all(channels_->gather(), "ncclBroadcast", all, call);
}

// ---- Memory and children.

std::shared_ptr<PrivateArena> NcclComm::arena_of(const Location& location) const {
  return std::static_pointer_cast<PrivateArena>(arena(location));
}

Location NcclComm::mappable(const void* base) const {
  if (!library_.has_windows() || base == nullptr) return {};
  const Location place = locate(base, 1);
  const std::shared_ptr<PrivateArena> arena = arena_of(place);
  return arena != nullptr && arena->shareable() ? place : Location{};
}

Status NcclComm::map_arena(Use use, const Location& place) {
  if (aborted()) return failure_status();
  mapped_.insert(place.arena);
  const std::shared_ptr<PrivateArena> arena = arena_of(place);
  if (arena == nullptr) {  // the other ranks wait for this rank inside NCCL
    return broken({ZERO_ERR_INTERNAL, text("arena ", place.arena, " was freed while in use")},
                  "arenas");
  }
  Channel& channel = use == Use::reduce ? channels_->reduce() : channels_->gather();
  Status opened = open_window(library_, channel, *arena, bounds());
  if (opened.ok()) return {};
  if (aborted()) return told(failure_status());
  return broken(std::move(opened), "arenas");
}

Result<std::shared_ptr<Comm>> NcclComm::make_child(Call&, std::span<const int32_t> members,
                                                   int32_t place, int32_t color) {
  const Bounds bounds{options().rendezvous_ms, [&] { return TcpComm::check(); }};
  Result<std::unique_ptr<Channels>> channels = split(
      library_, channels_->gather(), members.empty() ? kNoColor : color, place, options(), bounds);
  // If the split failed on some ranks, its result is unknown on the other ranks.
  if (!channels.ok()) return broken(std::move(channels).status(), "zero_comm_split");
  if (*channels == nullptr) return std::shared_ptr<Comm>();
  return take_seat(
      {library_, device(), place, static_cast<int32_t>(members.size()), options(), bounds},
      std::move(*channels));
}

}  // namespace zero::nccl
