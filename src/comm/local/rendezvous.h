// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks on one host (comm/rendezvous.h): rank 0 listens at a name, makes the
// control segment and gives everybody everybody's life page. All get their seats, or none does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/local/control.h"
#include "comm/local/life.h"
#include "comm/rendezvous.h"

namespace zero::local {

/// One rank's part in a rendezvous at `address`, in the abstract name space.
struct NamedMeeting final : Meeting {
  NamedMeeting(std::string address, const Life& life);

  std::string address;

  Result<std::shared_ptr<Witness>> meet(std::span<Fd> descriptors, pid_t pid) const override;
  std::string absent(std::string_view ranks, int64_t limit_ms) const override;
  std::string unreached(std::span<const std::string> obstacles) const override;
};

/// A rank's result of the rendezvous: a place in the control segment, and its connections, which
/// stay open for arenas. Rank 0 has one to every rank (by rank), another rank only one, to rank 0.
struct Seat {
  std::unique_ptr<Control> control;
  std::vector<std::unique_ptr<Link>> links;
};

Result<Seat> meet(const NamedMeeting& meeting);

/// Returns the address of the comm `name` of this user. Everybody can read it while it is in use,
/// but with a word nobody can guess it before.
std::string address_of_comm(std::string_view name, std::string_view word = {});

/// Draws bits that tell one comm from any other.
Result<Generation> draw_generation();

/// A new control segment for `world` ranks, formatted and reserved.
struct ControlSegment {
  Fd fd;
  std::shared_ptr<Mapping> mapping;
};
Result<ControlSegment> make_control_segment(int32_t world);

}  // namespace zero::local
