// SPDX-License-Identifier: Apache-2.0
// How ranks of one host find each other: rank 0 listens at a name, the others come to it, it makes
// the control segment and gives everybody everybody's life page. All get their seats, or none does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/local/control.h"
#include "comm/local/life.h"
#include "comm/local/socket.h"

namespace zero::local {

/// Past the deadline, for rank 0's verdict to arrive: it names who never came.
inline constexpr int64_t kVerdictMs = 250;

struct Meeting {
  std::string title;    // "rendezvous 'job'", for error texts
  std::string address;  // in the abstract name space
  int32_t rank;
  int32_t world;
  int64_t limit_ms;
  int64_t deadline_ns;
  const Life* life;
  std::string device;             // what memory is on, the same for all: "host", "cuda"
  std::function<Status()> check;  // a failure ends the rendezvous

  Status failed(std::string_view sentence) const;
  int64_t remaining_ms() const;
};

/// What a rank takes from the rendezvous: a place in the control segment, and its connections,
/// which stay open for arenas: rank 0's to every rank (by rank), another's to rank 0 (the only
/// one).
struct Seat {
  std::unique_ptr<Control> control;
  std::vector<Fd> connections;
};

Result<Seat> meet(const Meeting& meeting);

/// The address of the comm `name` of this user.
std::string address_of_comm(std::string_view name);

// The two sides; both leave the last step, an exchange, to meet().
Result<Seat> meet_as_root(const Meeting& meeting);
Result<Seat> meet_at_root(const Meeting& meeting);

/// Random bits from the system.
Result<Generation> random_bits();

/// A new control segment for `world` ranks, formatted and reserved.
struct ControlSegment {
  Fd fd;
  std::shared_ptr<Mapping> mapping;
};
Result<ControlSegment> make_control_segment(int32_t world);

/// Has the process that a connection was closed by died? Waits a moment for the kernel to say so.
bool ended_by_now(const Peer& peer);

/// The descriptors that introduce a process: its life page and, if there is one, its pidfd.
std::vector<int> life_descriptors(const Life& life);

}  // namespace zero::local
