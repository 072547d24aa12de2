// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/tcp.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace zero::tcp {
namespace {

constexpr int32_t kNobody = -1;
constexpr int kPartingMs = 100;

}  // namespace

TcpComm::~TcpComm() {
  for (Peer& peer : peers_)
    (void)succeeds([&] { return peer.link->send(FrameKind::goodbye, sequence_), true; });
  const Deadline deadline(kPartingMs);
  while (unsent() && !deadline.passed()) {
    // Wait: kPartingMs.
    os().poll(nullptr, 0, 1);
    for (Peer& peer : peers_) peer.link->flush();
  }
}

bool TcpComm::unsent() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.link->unsent(); });
}

// ---- Exchange.

Status TcpComm::exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                               const Patience& patience) {
  return run({.mine = mine, .out = all}, patience);
}

Status TcpComm::combine_bytes(std::span<std::byte> data, const Combine& combine,
                              const Patience& patience) {
  return run({.mine = data, .out = data, .combine = &combine}, patience);
}

Status TcpComm::broadcast_bytes(std::span<std::byte> data, int32_t root, const Patience& first) {
  Patience patience = first;
  size_t done = 0;
  do {
    const std::span<std::byte> part = data.subspan(done, std::min(data.size() - done, kPartBytes));
    const bool own = rank() == root;
    const std::span<std::byte> none;
    ZERO_TRY(run({.mine = own ? part : none, .out = own ? none : part, .source = root}, patience));
    done += part.size();
    patience = later(first);
  } while (done < data.size());
  return {};
}

/// Returns the number of bytes that a child sends up.
size_t TcpComm::bytes_from(const Round& round, int32_t child) const {
  if (round.combine != nullptr) return round.mine.size();
  if (round.source == Round::kOfAll)
    return round.mine.size() * static_cast<size_t>(tree_.at(child).count());
  return tree_.at(child).holds(round.source) ? round.out.size() : 0;
}

/// Sends the data of all ranks below and of this rank up, after all of it has arrived. At the root
/// this decides the exchange. Returns true if it has been done.
bool TcpComm::rise(const Round& round) {
  if (risen()) return true;
  for (const Peer& child : children())
    if (!child.record) return false;
  std::vector<std::byte> together(round.mine.begin(), round.mine.end());
  for (Peer& child : children()) {
    const auto& [kind, sequence, theirs, descriptors] = *child.record;
    if (sequence != sequence_ || theirs.size() != bytes_from(round, child.place)) {
      propose(make_failure(ZERO_ERR_COMM, kNobody, "the ranks sent records that do not match"));
      return false;
    }
    if (round.combine != nullptr)
      (*round.combine)(together.data(), theirs.data(), theirs.size());
    else
      together.insert(together.end(), theirs.begin(), theirs.end());
  }
  for (Peer& child : children()) child.record.reset();
  risen_ = sequence_;
  risen_ns_ = now_ns();
  if (!tree_.is_root()) {
    send(parent(), FrameKind::record, together);
    if (!children().empty()) os().reached("exchange.combined");
  } else if (round.source == Round::kOfAll) {
    records_ = Frame{FrameKind::records,
                     sequence_,
                     round.combine != nullptr ? std::move(together) : in_order(together),
                     {}};
  } else {
    records_ = Frame{FrameKind::records, sequence_, {}, {}};
  }
  together_ = std::move(together);
  return true;
}

/// Returns rows in rank order, given in the order in which they came up.
std::vector<std::byte> TcpComm::in_order(std::span<const std::byte> rows) const {
  std::vector<int32_t> places;
  tree_.list(places);
  std::vector<std::byte> all(rows.size());
  const size_t bytes = rows.size() / places.size();
  for (const int32_t place : places) {
    std::copy_n(rows.begin(), bytes, all.begin() + place * static_cast<std::ptrdiff_t>(bytes));
    rows = rows.subspan(bytes);
  }
  return all;
}

/// Processes the outcome after it has arrived, and sends it to the ranks below that do not have it.
/// Returns true if it has been done.
bool TcpComm::pass_down(const Round& round) {
  if (answered_ == sequence_) return true;
  if (!records_) return false;
  const Frame frame = *std::exchange(records_, std::nullopt);
  const auto has_it = [&](const Tree& tree) {
    return round.source != Round::kOfAll && tree.holds(round.source);
  };
  if (frame.sequence != sequence_ ||
      frame.payload.size() != (has_it(tree_) ? 0 : round.out.size())) {
    blame(parent(), ZERO_ERR_COMM, text("rank ", parent().rank, " sent records that do not match"));
    return false;
  }
  answered_ = sequence_;
  if (void_at_ == sequence_) proposed_.reset();
  const std::span<const std::byte> outcome = has_it(tree_) ? together_ : frame.payload;
  if (!round.out.empty()) memcpy(round.out.data(), outcome.data(), round.out.size());
  for (Peer& child : children()) {
    send(child, FrameKind::records, has_it(tree_.at(child.place)) ? outcome.first(0) : outcome);
    if (!tree_.is_root()) os().reached("exchange.passed");
  }
  if (tree_.is_root()) os().reached("exchange.decided");
  return true;
}

/// Sends a part of the current exchange.
void TcpComm::send(Peer& peer, FrameKind kind, std::span<const std::byte> payload) {
  traffic().control.sent.add(payload.size());
  peer.link->send(kind, sequence_, payload);
}

// ---- Received frames.

/// Reads received frames, but none after the outcome of an exchange until that has gone down.
void TcpComm::pump() {
  for (Peer& peer : peers_) {
    peer.link->flush();
    while (std::optional<Frame> frame = peer.link->take()) {
      handle(peer, std::move(*frame));
      if (is_parent(peer) && records_) break;
    }
    if (peer.link->over() && !peer.left)
      blame(peer, ZERO_ERR_PEER_DEAD, text(peer.name, " died: its connection was closed"));
  }
  if (proposed_ && alone_.passed()) set_cause(*proposed_);
}

void TcpComm::handle(Peer& peer, Frame frame) {
  if (frame.kind == FrameKind::record || frame.kind == FrameKind::records)
    traffic().control.received.add(frame.payload.size());
  peer.sign_ns = now_ns();
  switch (frame.kind) {
    case FrameKind::record:
      peer.record = std::move(frame);
      news_ = true;
      break;
    case FrameKind::records:
      if (is_parent(peer)) records_ = std::move(frame);
      break;
    case FrameKind::waiting:
      hear_waiting(peer, frame);
      break;
    case FrameKind::progress:
      news_ = true;
      break;
    case FrameKind::cause:
      hear_cause(peer, frame);
      break;
    case FrameKind::goodbye:
      peer.left = true;
      break;
    case FrameKind::refusal:
      break_for(peer, make_failure(ZERO_ERR_RENDEZVOUS, kNobody, text_of(frame)));
      break;
    default:
      blame(peer, ZERO_ERR_COMM, text(peer.name, " introduced itself twice"));
      break;
  }
}

/// Forwards a cause from below to rank 0, which decides. A cause from above is final.
void TcpComm::hear_cause(const Peer& peer, const Frame& frame) {
  if (is_parent(peer)) return set_cause(unpack(frame.payload), &peer);
  if (!tree_.is_root()) return parent().link->send(frame.kind, frame.sequence, frame.payload);
  // The deadline passed while the answer was in transit.
  if (frame.sequence != 0 && frame.sequence <= answered_) return;
  set_cause(unpack(frame.payload));
}

Status TcpComm::check() {
  {
    const std::lock_guard lock(mutex_);
    pump();
  }
  return Comm::check();
}

// ---- Failures.

void TcpComm::abort(const Failure& cause) {
  const std::lock_guard lock(mutex_);
  set_cause(cause);
}

/// Sets the cause unless there is one, and sends it to all neighbours except the parent that sent
/// it. A child that sent it waits for the answer.
void TcpComm::set_cause(const Failure& cause, const Peer* told_by) {
  if (aborted()) return;
  cause_.set(cause);
  const Cause packed = pack(cause);
  for (Peer& peer : peers_)
    if (&peer != told_by) peer.link->send(FrameKind::cause, 0, as_payload(packed));
}

/// Asks rank 0 to set a cause. Sets it on this rank alone if there is no answer within `grace_ms`.
/// The cause is void if rank 0 has completed exchange `sequence`, unless `sequence` is 0.
void TcpComm::propose(const Failure& cause, uint64_t sequence, int64_t grace_ms) {
  if (aborted() || proposed_) return;
  if (tree_.is_root()) return set_cause(cause);
  proposed_ = cause;
  void_at_ = sequence;
  alone_ = Deadline(grace_ms);
  parent().link->send(FrameKind::cause, sequence, as_payload(pack(cause)));
}

/// Breaks the comm because of a neighbour. A rank that has lost its parent can ask nobody.
void TcpComm::break_for(const Peer& peer, const Failure& failure) {
  is_parent(peer) ? set_cause(failure) : propose(failure);
}

void TcpComm::blame(const Peer& peer, Code code, std::string_view sentence) {
  break_for(peer, make_failure(code, peer.rank, sentence));
}

Failure TcpComm::make_failure(Code code, int32_t rank, std::string_view sentence) const {
  return steps_so_far().fail(code, rank, where_,
                             text(where_, where_.empty() ? "" : ": ", sentence));
}

Failure TcpComm::failure() const {
  Failure failure = cause_.get();
  failure.params_consistent = failure.params_consistent && steps_so_far().consistent();
  return failure;
}

Result<std::shared_ptr<Comm>> TcpComm::make_child(Call&, std::span<const int32_t>, int32_t,
                                                  int32_t) {
  return Status(ZERO_ERR_UNSUPPORTED, "a comm that only connects ranks cannot be split");
}

}  // namespace zero::tcp
