// SPDX-License-Identifier: Apache-2.0
#include "comm/local/local.h"

#include <algorithm>

#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/create.h"

namespace zero {

Result<std::shared_ptr<Comm>> create_local(std::string_view name, int32_t rank, int32_t world,
                                           const CommOptions& options,
                                           std::shared_ptr<Device> device, std::string_view word) {
  if (name.empty()) return Status(ZERO_ERR_ARGUMENT, "the name of a local comm is empty");
  if (world < 1 || world > local::kMaxWorld)
    return Status(ZERO_ERR_ARGUMENT,
                  text("world is ", world, ": a local comm has 1 to ", local::kMaxWorld, " ranks"));
  if (rank < 0 || rank >= world)
    return Status(ZERO_ERR_ARGUMENT, text("rank is ", rank, " in a world of ", world));
  log_as(rank);
  return std::shared_ptr<Comm>(ZERO_TRY(
      local::join(text("rendezvous '", name, "'"), local::address_of_comm(name, word), word, rank,
                  world, options, std::move(device), [] { return Status(); })));
}

namespace local {

Result<std::shared_ptr<LocalComm>> join(const std::string& title, const std::string& address,
                                        std::string_view word, int32_t rank, int32_t world,
                                        const CommOptions& options, std::shared_ptr<Device> device,
                                        std::function<Status()> check) {
  const Deadline deadline(options.rendezvous_ms);
  Life life = ZERO_TRY(Life::begin());
  NamedMeeting meeting(address, life);
  meeting.title = title;
  meeting.rank = rank;
  meeting.world = world;
  meeting.limit_ms = options.rendezvous_ms;
  meeting.deadline = deadline;
  meeting.word = bytes_of(word);
  meeting.check = std::move(check);
  meeting.device = device == nullptr ? "host" : device->kind();
  Seat seat = ZERO_TRY(meet(meeting));
  auto comm = std::make_shared<LocalComm>(rank, world, options, std::move(life), std::move(seat),
                                          std::move(device));
  ZERO_TRY(comm->join_devices());
  return comm;
}

// ---- When the comm is created, the ranks agree on how their devices work together. If some device
// lacks an ability, the hosts of all ranks replace it.

Status LocalComm::join_devices() {
  if (device() == nullptr || world() == 1) return {};
  Call call = ZERO_TRY(begin(Operation::create));
  Status fits;
  if (world() > LocalGates::kMostRanks) {
    fits = Status(ZERO_ERR_UNSUPPORTED,
                  text("world is ", world(), ": a local comm on devices has at most ",
                       LocalGates::kMostRanks, " ranks"));
  }
  ZERO_TRY(call.vote("world", fits));
  // Test now whether the devices can access each other's memory, before a model is in memory.
  Status reached = make_device_arena(call, next_arena(), 1, ZERO_MEMORY_PER_RANK).status();
  if (reached.code() == ZERO_ERR_PEER) reached = {};  // the rank that failed reports the reason
  const std::string unreached = ZERO_TRY(call.find_lacking("reach", reached));
  if (unreached.empty()) return open_gates(call);
  if (options().stages) return open_staging(call, unreached);
  return Status(ZERO_ERR_UNSUPPORTED,
                text("devices cannot access each other's memory (", unreached, ")"));
}

Status LocalComm::open_gates(Call& call) {
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(LocalGates::bytes_of(world()), ZERO_MEMORY_SHARED, world()));
  std::shared_ptr<Mapping> words =
      ZERO_TRY(call.vote("words", map_on_all(call, next_arena(), layout)));
  Result<std::unique_ptr<LocalGates>> opened =
      LocalGates::open(device(), *control_, std::move(words), options().timeout_ms);
  const std::string lacking = ZERO_TRY(call.find_lacking("gates", opened.failure()));
  if (lacking.empty())
    gates_ = std::move(*opened);
  else
    gates_ = ZERO_TRY(open_meeting(
        call, "a gate",
        text("the host waits in every step, because streams cannot wait (", lacking, ")")));
  return {};
}

/// Makes the hosts meet in every step. `why` says what is different in every step, and why.
Result<std::unique_ptr<HostMeeting>> LocalComm::open_meeting(Call& call, const char* what,
                                                             const std::string& why) {
  std::unique_ptr<HostMeeting> meeting = ZERO_TRY(call.vote(
      "meeting", HostMeeting::open(what, device(), *control_, options().timeout_ms, host_waits)));
  uncaptured_ =
      Status(ZERO_ERR_UNSUPPORTED,
             text("the stream is being captured, but steps of this comm cannot be: ", why));
  log(ZERO_LOG_WARNING, text("rank ", rank(), " of a local comm: ", why));
  return meeting;
}

Status LocalComm::open_staging(Call& call, const std::string& why) {
  std::unique_ptr<HostMeeting> meeting =
      ZERO_TRY(open_meeting(call, "a transfer",
                            text("gradients and parameters are copied through host memory in every "
                                 "step, because devices cannot access "
                                 "each other's memory (",
                                 why, ")")));
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(options().staging_bytes, ZERO_MEMORY_PER_RANK, world()));
  std::shared_ptr<Mapping> slots =
      ZERO_TRY(call.vote("slots", map_on_all(call, next_arena(), layout)));
  staged_ =
      ZERO_TRY(call.vote("staging", StagedPlane::open(device(), rank(), std::move(meeting),
                                                      std::move(slots), layout, staged_bytes)));
  return {};
}

// ---- Children.

Result<std::shared_ptr<Comm>> LocalComm::make_child(Call& call, std::span<const int32_t> members,
                                                    int32_t place, int32_t) {
  // The child's rank 0 draws the name, which stays empty if this fails.
  std::string name;
  const auto draw = [&]() -> Status {
    name = hex(Digest(ZERO_TRY(draw_generation())));
    return {};
  };
  Status drawn = !members.empty() && members[0] == rank() ? draw() : Status();
  const std::vector<std::string> names = ZERO_TRY(call.gather("child", name));
  ZERO_TRY(std::move(drawn));
  if (members.empty()) return std::shared_ptr<Comm>();
  const std::string& shared = names[static_cast<size_t>(members[0])];
  if (shared.empty())
    return Status(ZERO_ERR_PEER,
                  text("rank ", members[0], " could not draw a name for the new comm"));
  const Patience where{operation_name(call.operation()), "child", options().rendezvous_ms, false};
  // Other members may die or fail before they join. This comm detects that, but the child's
  // rendezvous could not. A rank that waits in the rendezvous reports progress on this comm, where
  // other ranks may wait for it.
  const auto check = [&]() -> Status {
    control_->note_progress();
    ZERO_TRY(control_->check(where));
    if (!control_->any_withdrew(members)) return {};
    return Status(ZERO_ERR_PEER, "another rank could not join the new comm");
  };
  Result<std::shared_ptr<LocalComm>> child =
      join(text("rendezvous of the comm made by a split"), address_of_comm(shared, shared), shared,
           place, static_cast<int32_t>(members.size()), options(), device(), check);
  if (child.ok()) return std::shared_ptr<Comm>(std::move(*child));
  // The next vote reports the reason of the rank that failed.
  if (control_->any_withdrew(members)) return std::shared_ptr<Comm>();
  control_->withdraw();
  return child.failure();
}

}  // namespace local
}  // namespace zero
