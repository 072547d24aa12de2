// SPDX-License-Identifier: Apache-2.0
#include "comm/local/rendezvous.h"

#include <algorithm>
#include <cerrno>

#include "base/hash.h"
#include "base/text.h"

namespace zero::local {
namespace {

constexpr size_t kPlainNameBytes = 64;
constexpr int64_t kSettleMs =
    100;  // between a connection's end and the kernel's word about a death

Result<Seat> meet_alone(const Meeting& meeting) {
  ControlSegment segment = ZERO_TRY(make_control_segment(1));
  Control::slot_of(segment.mapping->data(), 0).pid.store(os().getpid());
  std::vector<std::shared_ptr<Peer>> peers;
  peers.push_back(ZERO_TRY(Peer::meet(meeting.life->page(), Fd(), os().getpid())));
  Seat seat;
  seat.control = std::make_unique<Control>(segment.mapping, 0, 1, std::move(peers));
  return seat;
}

}  // namespace

Status Meeting::failed(std::string_view sentence) const {
  return Status(ZERO_ERR_RENDEZVOUS, text(title, ": ", sentence));
}

int64_t Meeting::remaining_ms() const {
  return std::max<int64_t>(0,
                           (deadline_ns - now_ns() + 999'999) / 1'000'000);  // never a moment early
}

Result<Seat> meet(const Meeting& meeting) {
  os().reached("rendezvous.begun");
  Result<Seat> met = meeting.world == 1  ? meet_alone(meeting)
                     : meeting.rank == 0 ? meet_as_root(meeting)
                                         : meet_at_root(meeting);
  switch (met.failure().code()) {
    case ZERO_ERR_SYSTEM:
    case ZERO_ERR_MEMORY:
    case ZERO_ERR_COMM:
      return std::move(met).status().within(meeting.title);
    default:
      break;
  }
  Seat seat = ZERO_TRY(std::move(met));
  os().reached("rendezvous.seated");
  // Rank 0 may still be waiting for another one, and knows whom to name: the others give it time
  // to.
  const int64_t limit_ms = meeting.remaining_ms() + (meeting.rank == 0 ? 0 : kVerdictMs);
  ZERO_TRY(seat.control->exchange({}, {},
                                  {.operation = meeting.title.c_str(),
                                   .phase = "last step",
                                   .limit_ms = limit_ms,
                                   .extended_by_progress = false,
                                   .code = ZERO_ERR_RENDEZVOUS}));
  os().reached("rendezvous.done");
  return seat;
}

std::string address_of_comm(std::string_view name) {
  // Anything longer might not fit a socket's address.
  const std::string tail =
      name.size() <= kPlainNameBytes ? std::string(name) : text("#", hex(hash128(bytes_of(name))));
  return text("zero/", os().geteuid(), "/", tail);
}

Result<Generation> random_bits() {
  Generation bits;
  const ssize_t got =
      uninterrupted([&] { return os().getrandom(&bits, sizeof bits, 0); }, kInterruptedMs);
  if (got != static_cast<ssize_t>(sizeof bits))
    return Status(ZERO_ERR_SYSTEM, text("drawing random bits: ", errno_text(errno)));
  return bits;
}

Result<ControlSegment> make_control_segment(int32_t world) {
  const size_t bytes = control_bytes(world);
  const Generation generation = ZERO_TRY(random_bits());
  ControlSegment made;
  made.fd = ZERO_TRY(create_segment("zero.control", bytes));
  made.mapping = ZERO_TRY(map_segment(made.fd.get(), bytes, Access::hidden));
  ZERO_TRY(reserve(made.fd.get(), *made.mapping, 0, bytes));
  Control::format(made.mapping->data(), world, generation);
  return made;
}

bool ended_by_now(const Peer& peer) {
  const int64_t until = now_ms() + kSettleMs;
  while (!peer.ask()) {
    if (now_ms() >= until) return false;
    sleep_ms(1);
  }
  return true;
}

std::vector<int> life_descriptors(const Life& life) {
  std::vector<int> descriptors{life.page()};
  if (life.pidfd() >= 0) descriptors.push_back(life.pidfd());
  return descriptors;
}

}  // namespace zero::local
