// SPDX-License-Identifier: Apache-2.0
// How the devices of a local comm's ranks work together, which the ranks agree on when it is made:
// what one of them cannot do is done by the hosts of all.
#include "base/log.h"
#include "base/text.h"
#include "comm/local/gates.h"
#include "comm/local/local.h"

namespace zero::local {

Status LocalComm::join_devices() {
  if (device() == nullptr || world() == 1) return {};
  Call call = ZERO_TRY(begin(Operation::create));
  Status fits;
  if (world() > LocalGates::kMostRanks) {
    fits = Status(ZERO_ERR_UNSUPPORTED,
                  text("world is ", world(), ": a local comm on devices has up to ",
                       LocalGates::kMostRanks, " ranks"));
  }
  ZERO_TRY(call.vote("world", fits));
  // Whether the devices reach each other's memory is better known now than with a model in it.
  const std::string unreached = ZERO_TRY(find_unreached(call));
  if (unreached.empty()) return open_gates(call);
  if (options().stages) return open_staging(call, unreached);
  return Status(ZERO_ERR_UNSUPPORTED,
                text("devices do not reach each other's memory (", unreached, ")"));
}

/// Why not every rank's device reaches all others' memory, "" if it does.
Result<std::string> LocalComm::find_unreached(Call& call) {
  Status reached = make_device_arena(call, next_arena(), 1, ZERO_MEMORY_PER_RANK).status();
  if (reached.code() == ZERO_ERR_PEER) reached = {};  // that rank tells
  return call.find_lacking("reach", reached);
}

Status LocalComm::open_gates(Call& call) {
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(LocalGates::bytes_of(world()), ZERO_MEMORY_SHARED, world()));
  std::shared_ptr<Mapping> words =
      ZERO_TRY(call.vote("words", share_memory(call, next_arena(), layout)));
  Result<std::unique_ptr<LocalGates>> opened =
      LocalGates::open(device(), *control_, std::move(words), options().timeout_ms);
  const std::string lacking = ZERO_TRY(call.find_lacking("gates", opened.failure()));
  if (lacking.empty())
    gates_ = std::move(*opened);
  else
    gates_ = ZERO_TRY(
        open_meeting(call, "a gate", text("the host waits, as streams cannot (", lacking, ")")));
  return {};
}

/// `why`: what is different in every step, and why.
Result<std::unique_ptr<HostMeeting>> LocalComm::open_meeting(Call& call, const char* what,
                                                             const std::string& why) {
  std::unique_ptr<HostMeeting> meeting = ZERO_TRY(call.vote(
      "meeting", HostMeeting::open(what, device(), *control_, options().timeout_ms, host_waits)));
  uncaptured_ =
      Status(ZERO_ERR_UNSUPPORTED,
             text("the stream is being captured, and no step of this comm can be: ", why));
  log(ZERO_LOG_WARNING, text("rank ", rank(), " of a local comm: in every step ", why));
  return meeting;
}

Status LocalComm::open_staging(Call& call, const std::string& why) {
  std::unique_ptr<HostMeeting> meeting = ZERO_TRY(open_meeting(
      call, "a transfer",
      text("gradients and parameters go through the host's memory, as devices do not reach "
           "each other's (",
           why, ")")));
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(options().staging_bytes, ZERO_MEMORY_PER_RANK, world()));
  std::shared_ptr<Mapping> slots =
      ZERO_TRY(call.vote("slots", share_memory(call, next_arena(), layout)));
  staged_ =
      ZERO_TRY(call.vote("staging", StagedPlane::open(device(), rank(), std::move(meeting),
                                                      std::move(slots), layout, staged_bytes)));
  return {};
}

}  // namespace zero::local
