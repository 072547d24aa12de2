// SPDX-License-Identifier: Apache-2.0
// How ranks of one host find each other: rank 0 listens at a name, the others come to it, it makes
// the control segment and gives everybody everybody's life page. All get their seats, or none does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/local/control.h"
#include "comm/local/life.h"
#include "comm/local/socket.h"
#include "comm/local/wire.h"

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
  std::string word;               // what only ranks of this job know; "": nothing
  std::function<Status()> check;  // a failure ends the rendezvous

  Status failed(std::string_view sentence) const;
  int64_t remaining_ms() const;
  Hello hello() const;
  /// Where a rank looks for others: to be told to who finds nobody.
  std::string whereabouts() const;
  std::span<const std::byte> key() const { return std::as_bytes(std::span(word)); }
};

/// What a rank takes from the rendezvous: a place in the control segment, and its connections,
/// which stay open for arenas: rank 0's to every rank (by rank), another's to rank 0 (the only
/// one).
struct Seat {
  std::unique_ptr<Control> control;
  std::vector<Fd> connections;
};

Result<Seat> meet(const Meeting& meeting);

/// The address of the comm `name` of this user. Everybody can read it while it is in use: with a
/// word nobody can guess it before.
std::string address_of_comm(std::string_view name, std::string_view word = {});

/// In a user namespace every user that it does not know has one number, which the kernel then tells
/// of processes of all of them. Whether that is this process's.
bool users_look_alike();

/// What a rank answers to what came as rank 0's challenge, once that has shown that it knows the
/// word. ZERO_ERR_RENDEZVOUS if it has not; nothing if it is no challenge.
Result<std::optional<Answer>> answer_to(const MessageBuffer& challenge, const Hello& hello,
                                        const Meeting& meeting, pid_t root);

// The two sides; both leave the last step, an exchange, to meet().
Result<Seat> meet_as_root(const Meeting& meeting);
Result<Seat> meet_at_root(const Meeting& meeting);

Result<Generation> draw_generation();

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
