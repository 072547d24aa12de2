// SPDX-License-Identifier: Apache-2.0
// The rendezvous of ranks on one host (comm/rendezvous.h). Rank 0 listens at a name, creates the
// control segment, and sends every rank all life pages. All ranks join the comm, or none does.
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

/// One rank's parameters of a rendezvous at `address`, a name in the abstract namespace.
struct NamedMeeting final : Meeting {
  NamedMeeting(std::string address, const Life& life);

  std::string address;

  Result<std::shared_ptr<Witness>> meet(std::span<Fd> descriptors, pid_t pid) const override;
  std::string absent(std::string_view ranks, int64_t limit_ms) const override;
  std::string unreached(std::span<const std::string> obstacles) const override;
};

/// The result of the rendezvous on one rank: its access to the control segment, and its
/// connections, which stay open for arenas. Rank 0 has connections to all ranks, by rank. Another
/// rank has one, to rank 0.
struct Seat {
  std::unique_ptr<Control> control;
  std::vector<std::unique_ptr<Link>> links;
};

Result<Seat> meet(const NamedMeeting& meeting);

/// Returns the address of the comm `name` of this user. Every user can see the address while it is
/// in use. With a secret `word`, no user can guess it before.
std::string address_of_comm(std::string_view name, std::string_view word = {});

/// Draws random bits that distinguish a comm from all others.
Result<Generation> draw_generation();

/// A new control segment for `world` ranks, formatted and reserved.
struct ControlSegment {
  Fd fd;
  std::shared_ptr<Mapping> mapping;
};
Result<ControlSegment> make_control_segment(int32_t world);

}  // namespace zero::local
