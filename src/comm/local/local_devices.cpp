// SPDX-License-Identifier: Apache-2.0
// How the devices of a local comm's ranks work together, which the ranks agree on when it is made:
// what one of them cannot do is done by the hosts of all.
#include "base/log.h"
#include "base/text.h"
#include "comm/local/host_meeting.h"
#include "comm/local/local.h"

namespace zero::local {
namespace {

/// Why not all ranks can do something, by the words of the lowest that cannot; "" if all can. What
/// failed otherwise is the call's own failure.
Result<std::string> find_lacking(Call& call, std::string_view phase, const Status& mine) {
  const bool lacks = mine.code() == ZERO_ERR_UNSUPPORTED;
  ZERO_TRY(call.vote(phase, lacks ? Status() : Status(mine)));
  const std::vector<std::string> reasons =
      ZERO_TRY(call.gather(phase, lacks ? mine.text() : std::string_view()));
  for (size_t r = 0; r < reasons.size(); r++)
    if (!reasons[r].empty()) return text("rank ", r, ": ", reasons[r]);
  return std::string();
}

}  // namespace

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
  ZERO_TRY(open_gates(call));
  // Whether the devices reach each other's memory is better known now than with a model in it.
  return call.allocate(1, ZERO_MEMORY_PER_RANK).status();
}

Status LocalComm::open_gates(Call& call) {
  ++arena_attempts_;
  const ArenaLayout layout =
      ZERO_TRY(ArenaLayout::of(LocalGates::bytes_of(world()), ZERO_MEMORY_SHARED, world()));
  Result<std::shared_ptr<Mapping>> words = share_memory(call, layout);
  ZERO_TRY(call.vote("words", words.failure()));
  Result<std::unique_ptr<LocalGates>> opened =
      LocalGates::open(device(), *control_, std::move(*words), options().timeout_ms);
  const std::string lacking = ZERO_TRY(find_lacking(call, "gates", opened.failure()));
  if (lacking.empty()) {
    gates_ = std::move(*opened);
    return {};
  }
  Result<HostMeeting> meeting =
      HostMeeting::open(device(), *control_, options().timeout_ms, host_waits);
  ZERO_TRY(call.vote("meeting", meeting.failure()));
  gates_ = std::make_unique<HostGates>(std::move(*meeting));
  uncaptured_ = Status(ZERO_ERR_UNSUPPORTED,
                       text("the stream is being captured, and in every step of this comm the host "
                            "waits, which no graph can do, because streams cannot (",
                            lacking, ")"));
  log(ZERO_LOG_WARNING,
      text("local comm: the host waits in every step, because streams cannot (", lacking, ")"));
  return {};
}

}  // namespace zero::local
