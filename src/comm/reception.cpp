// SPDX-License-Identifier: Apache-2.0
// The listening side of a rendezvous. A process that connects is a stranger until it has proved to
// be a rank. A dropped stranger ends nothing. A rank that disagrees ends the rendezvous for all.
#include <algorithm>
#include <cerrno>

#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/rendezvous.h"

namespace zero {
namespace {

constexpr int64_t kLingerMs = 1'000;  // to inform ranks that arrive after the rendezvous has failed
constexpr int kSliceMs = 20;          // of a wait
constexpr int kAcceptsAtOnce = 64;
constexpr size_t kMostText = 4000;      // of a refusal
constexpr size_t kMostStrangers = 256;  // in addition to one for each rank

}  // namespace

Status Reception::gather() {
  Watch watch(meeting_.patience());
  while (seated_ < guests_.size()) {
    ZERO_TRY(wait_and_look());
    ZERO_TRY(accept());
    ZERO_TRY(hear_strangers());
    for (Partner& one : guests_)  // guests send nothing that is read here
      if (one.link != nullptr && one.link->ended()) return gone(one);
    if (seated_ == guests_.size()) break;
    if (deadline_.passed()) return deadline_passed();
    watch.look();
    if (watch.warns()) log(ZERO_LOG_WARNING, watch.warning(mine_.called_rank(), missing()));
  }
  strangers_.clear();
  formed_ = true;
  return {};
}

Status Reception::await_ready() {
  const auto is_ready = [](const Partner& one) { return one.ready; };
  while (!std::all_of(guests_.begin(), guests_.end(), is_ready)) {
    ZERO_TRY(wait_and_look());
    for (Partner& one : guests_) {
      if (const std::optional<Frame> frame = one.link->take()) {
        ZERO_TRY(check(one, *frame, FrameKind::ready));
        one.ready = true;
      }
      if (one.link->over()) return gone(one);
    }
    if (deadline_.passed()) return deadline_passed();
  }
  return {};
}

/// Sleeps until something arrives, at most for one slice. Then checks which processes have died.
Status Reception::wait_and_look() {
  std::vector<pollfd> polls;
  if (listener_.valid()) polls.push_back({listener_.get(), POLLIN, 0});
  for (std::vector<Partner>* const some : {&strangers_, &guests_})
    for (Partner& one : *some) {
      if (one.link == nullptr) continue;
      one.link->flush();
      polls.push_back({one.link->fd(), POLLIN, 0});
    }
  // Wait: a slice: the caller has the deadline.
  os().poll(polls.data(), polls.size(), kSliceMs);
  ZERO_TRY(meeting_.look());
  for (const Partner& one : guests_)
    if (one.witness != nullptr && one.witness->ask())
      return meeting_.failed(text(one.said->name(), " died"));
  return {};
}

// ---- Strangers.

Status Reception::accept() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Partner stranger;
    Fd connection = accept_connection(listener_.get());
    if (!connection.valid()) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      const bool full = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
      // The system reports that it is full even if no connection is waiting.
      pollfd one{listener_.get(), POLLIN, 0};
      if (!full || os().poll(&one, 1, 0) <= 0) return {};
      if (strangers_.empty())
        return Status(ZERO_ERR_SYSTEM, text("accepting a rank's connection: ", errno_text(error),
                                            error == EMFILE ? ": raise ulimit -n" : ""));
      drop_a_stranger();
      continue;
    }
    if (meeting_.one_host) {
      const Identity who = ZERO_TRY(identity_of(connection.get()));
      stranger.pid = who.pid;
      if (who.uid != os().geteuid()) {
        log(ZERO_LOG_WARNING,
            text(meeting_.title, ": a process of user ", who.uid, " was turned away"));
        continue;
      }
    }
    if (strangers_.size() == guests_.size() + kMostStrangers) drop_a_stranger();
    stranger.link = std::make_unique<Link>(std::move(connection));
    strangers_.push_back(std::move(stranger));
  }
  return {};
}

/// Drops a stranger that has sent nothing, if there is one, so that silent strangers cannot crowd
/// out a rank. Otherwise drops the oldest stranger.
void Reception::drop_a_stranger() {
  const auto silent = std::find_if(strangers_.begin(), strangers_.end(),
                                   [](const Partner& one) { return !one.spoke(); });
  strangers_.erase(silent == strangers_.end() ? strangers_.begin() : silent);
}

Status Reception::hear_strangers() {
  for (Partner& one : strangers_) {
    std::optional<Frame> frame = one.link->take();
    if (frame && !ZERO_TRY(one.said ? confirm(one, *frame) : greet(one, std::move(*frame)))) {
      one.link.reset();
      continue;
    }
    if (const auto& other = one.link->other_version()) {
      if (other->kind == FrameKind::hello && meeting_.knows_users)
        return meeting_.failed(text("process ", one.pid, " has ", other->version(), ", ",
                                    mine_.name(), " has ", Prefix().version()));
      one.link.reset();
    } else if (one.link->over()) {
      if (Status why = one.link->problem(); why.code() == ZERO_ERR_SYSTEM) return why;
      ZERO_TRY(lost(one));
      one.link.reset();
    }
  }
  std::erase_if(strangers_, [](const Partner& one) { return one.link == nullptr; });
  return {};
}

/// Welcomes a stranger. Returns false if it is not a rank.
Result<bool> Reception::greet(Partner& stranger, Frame frame) {
  std::optional<Introduction> said = read<Introduction>(frame, FrameKind::hello);
  if (!said) return false;
  if (stranger.pid != 0) said->pid = stranger.pid;  // 0 for a process of another pid namespace
  stranger.said = said;
  stranger.descriptors = std::move(frame.descriptors);
  // Only a process that its descriptors introduce is a rank, and can end the rendezvous.
  Result<std::shared_ptr<Witness>> witness =
      meeting_.meet(stranger.descriptors, static_cast<pid_t>(said->pid));
  if (witness.failure().code() == ZERO_ERR_COMM) {
    log(ZERO_LOG_WARNING, text(meeting_.title, ": ", said->process(),
                               " was turned away: ", witness.failure().text()));
    return false;
  }
  stranger.witness = ZERO_TRY(std::move(witness));
  ZERO_TRY(draw_random(stranger.nonce));
  Welcome welcome{mine_,
                  prove(meeting_.word, Role::root, said->rank, {said->nonce, stranger.nonce})};
  welcome.root.nonce = stranger.nonce;
  stranger.link->send(FrameKind::welcome, 0, as_payload(welcome));
  return true;
}

/// Checks a stranger's proof, and seats it. Returns false if it is not a rank, or has been seated.
Result<bool> Reception::confirm(Partner& stranger, const Frame& frame) {
  const Introduction& said = *stranger.said;
  const std::optional<Proof> proof = read<Proof>(frame, FrameKind::confirm);
  if (!proof) return false;
  if (!equal_in_constant_time(
          *proof, prove(meeting_.word, Role::guest, said.rank, {said.nonce, stranger.nonce}))) {
    refuse(*stranger.link,
           meeting_.failed(text(mine_.name(), ", which holds this name, belongs to another job"))
               .text());
    log(ZERO_LOG_WARNING,
        text(meeting_.title, ": ", said.process(), " from another job was turned away"));
    return false;
  }
  if (Status odd = disagreement(stranger); !odd.ok()) {
    refuse(*stranger.link, odd.text());
    return odd;
  }
  seat(stranger);
  return false;
}

/// Returns what is wrong with a rank's introduction, or OK.
Status Reception::disagreement(const Partner& stranger) const {
  const Introduction& said = *stranger.said;
  if (said.world != meeting_.world)
    return meeting_.failed(text(said.name(), " says there are ", said.world, " ranks, ",
                                mine_.name(), " says ", meeting_.world));
  const int32_t end = first_ + static_cast<int32_t>(guests_.size());
  if (said.rank != meeting_.rank && (said.rank < first_ || said.rank >= end))
    return meeting_.failed(text(said.name(), " arrived, but ", mine_.name(), " expects only ranks ",
                                meeting_.rank, " to ", end - 1));
  if (const std::string device = text_in(said.device); device != meeting_.device)
    return meeting_.failed(text(said.name(), " has its memory on ", device, ", ", mine_.name(),
                                " on ", meeting_.device));
  const auto before = said.rank == meeting_.rank
                          ? std::optional(mine_)
                          : guests_[static_cast<size_t>(said.rank - first_)].said;
  if (!before) return {};
  return meeting_.failed(text("rank ", said.called_rank(), " arrived twice: as ", before->process(),
                              " and as ", said.process()));
}

/// Fails if a rank has died before it confirmed, because this also ends the rendezvous. If users
/// cannot be distinguished, only strangers that have confirmed are ranks.
Status Reception::lost(const Partner& stranger) const {
  if (stranger.witness == nullptr || !meeting_.knows_users || !stranger.died()) return {};
  ZERO_TRY(disagreement(stranger));
  return meeting_.failed(text(stranger.said->name(), " died"));
}

void Reception::seat(Partner& stranger) {
  const Introduction& said = *stranger.said;
  const int64_t most_ms = meeting_.deadline.left_ms();
  if (const Deadline its(std::clamp<int64_t>(said.remaining_ms, 0, most_ms)); its < deadline_) {
    deadline_ = its;
    limit_ms_ = said.limit_ms;
  }
  Partner& seated = guest(said.rank);
  // Ranks of one process have the same witness. Their descriptors are kept once, because a process
  // may not have many descriptors.
  const bool known = std::ranges::any_of(guests_, [&](const Partner& one) {
    return one.witness != nullptr && one.witness == stranger.witness;
  });
  if (known) stranger.descriptors.clear();
  seated = std::move(stranger);
  seated.link->trust(meeting_.most_bytes);
  ++seated_;
  os().reached("rendezvous.heard");
  seated.link->send(FrameKind::seated, 0, {}, meeting_.descriptors);
}

// ---- Guests.

Result<Frame> Reception::hear(Partner& guest, FrameKind kind) {
  Result<Frame> frame =
      zero::hear(*guest.link, {deadline_.left_ms(), [&] { return meeting_.look(); }});
  if (frame.failure().code() == ZERO_ERR_COMM) return gone(guest);
  if (frame.failure().code() == ZERO_ERR_TIMEOUT)
    return meeting_.failed(text(guest.said->name(), " did not answer within ", limit_ms_, " ms"));
  if (frame.ok()) ZERO_TRY(check(guest, *frame, kind));
  return frame;
}

/// Returns OK for a frame of `kind` from a guest that is not ready yet, and otherwise a failure.
Status Reception::check(const Partner& guest, const Frame& frame, FrameKind kind) const {
  if (frame.kind == kind && !guest.ready) return {};
  return meeting_.failed(frame.kind == FrameKind::refusal
                             ? text(guest.said->name(), ": ", text_of(frame))
                             : text(guest.said->name(), " sent an invalid reply"));
}

/// Returns the failure for a guest that has left, with the reason that it sent, if any.
Status Reception::gone(Partner& guest) const {
  const std::optional<Frame> last = guest.link->take();
  if (last && last->kind == FrameKind::refusal) return check(guest, *last, FrameKind::ready);
  if (Status why = guest.link->problem(); why.code() == ZERO_ERR_SYSTEM) return why;
  return meeting_.failed(text(guest.said->name(), guest.end()));
}

/// Returns the names of the ranks that have not arrived, or are not ready.
std::string Reception::missing() const {
  std::vector<std::string> late;
  for (size_t i = 0; i < guests_.size(); ++i) {
    const Partner& one = guests_[i];
    if (formed_ ? one.ready : one.said.has_value()) continue;
    late.push_back(formed_ ? one.said->name_and_state()
                           : text("rank ", meeting_.called(first_ + static_cast<int32_t>(i))));
  }
  return list_some(late);
}

Status Reception::deadline_passed() const {
  return meeting_.failed(formed_ ? text(missing(), " did not answer within ", limit_ms_, " ms")
                                 : meeting_.absent(missing(), limit_ms_));
}

// ---- Refusals.

std::string Reception::explain(const Status& failure) const {
  if (failure.code() == ZERO_ERR_RENDEZVOUS) return failure.text();
  return meeting_.failed(text(mine_.name(), ": ", failure.text())).text();
}

/// Sends a refusal, and reads what has arrived, because closing a connection with unread messages
/// discards what was sent on it.
void Reception::refuse(Link& link, std::string_view why) const {
  link.send(FrameKind::refusal, 0, bytes_of(utf8_prefix(why, kMostText)));
  while (link.take()) {
  }
}

void Reception::tell(Partner& one, std::string_view why) {
  refuse(*one.link, why);
  one.link.reset();
  if (!one.said) return;
  if (one.said->world > 0) expected_ = std::max(expected_, one.said->world);
  if (one.said->rank > 0 && one.said->rank < expected_) told_.insert(one.said->rank);
}

void Reception::dismiss(const std::string& why) {
  for (Partner& one : guests_)
    if (one.link != nullptr) tell(one, why);
  if (!meeting_.one_host) return;  // between hosts a stranger may be any process
  for (Partner& one : strangers_)
    if (one.link != nullptr && one.spoke()) tell(one, why);
  std::erase_if(strangers_, [](const Partner& one) { return one.link == nullptr; });
  if (listener_.valid()) linger(why);
}

/// Informs ranks that arrive late, which would otherwise wait until their deadline. An informed
/// rank that comes again starts a new rendezvous, so it must retry until this returns.
void Reception::linger(const std::string& why) {
  const Deadline end = std::min(deadline_, Deadline(kLingerMs));
  while (static_cast<int32_t>(told_.size()) < expected_ - 1 && !end.passed()) {
    (void)wait_and_look();
    for (Partner& one : strangers_) {
      const std::optional<Frame> frame = one.link->take();
      if (frame) one.said = read<Introduction>(*frame, FrameKind::hello);
      const bool knows = one.said && told_.count(one.said->rank) != 0;
      const bool has_no_room = one.link->problem().code() == ZERO_ERR_SYSTEM;
      if ((one.said && !knows) || has_no_room)
        tell(one, why);
      else if (frame || one.link->over())
        one.link.reset();
    }
    std::erase_if(strangers_, [](const Partner& one) { return one.link == nullptr; });
    if (!meeting_.look().ok() || !accept().ok()) return;
  }
}

}  // namespace zero
