// SPDX-License-Identifier: Apache-2.0
// Who comes to rank 0 is a stranger until its hello makes sense. Strangers are dropped and end
// nothing; a rank that disagrees ends the rendezvous for all.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"
#include "comm/local/rendezvous_root.h"

namespace zero::local {
namespace {

constexpr int64_t kStrangerMs = 5'000;  // for a hello, and for an answer
constexpr int64_t kLingerMs = 1'000;    // to tell ranks that come after the rendezvous has failed
constexpr int kAcceptsAtOnce = 64;

}  // namespace

Status Root::gather() {
  while (present_ < meeting_.world) {
    ZERO_TRY(turn());
    ZERO_TRY(accept_strangers());
    ZERO_TRY(hear_strangers());
    ZERO_TRY(hear_members());
    if (present_ < meeting_.world && now_ns() >= deadline_ns_) return deadline_passed();
  }
  strangers_.clear();
  listener_.reset();
  os().reached("rendezvous.gathered");
  return {};
}

/// Sleep until something arrives, a slice at most; then see who has died.
Status Root::turn() {
  std::vector<pollfd> polls;
  if (listener_.valid()) polls.push_back({listener_.get(), POLLIN, 0});
  for (const Stranger& one : strangers_) polls.push_back({one.connection.get(), POLLIN, 0});
  for (const Member& one : members_)
    if (one.connection.valid()) polls.push_back({one.connection.get(), POLLIN, 0});
  // Wait: a slice: the vigil has the deadline.
  os().poll(polls.data(), polls.size(), kSliceMs);
  return watch_members();
}

Status Root::watch_members() {
  ZERO_TRY(meeting_.check());
  for (int32_t r = 1; r < meeting_.world; ++r) {
    const Member& member = members_[static_cast<size_t>(r)];
    if (member.peer && member.peer->ask()) return meeting_.failed(text(name_of(r), " died"));
  }
  return {};
}

Status Root::accept_strangers() {
  const size_t most = 4 * members_.size() + 16;
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    // Wait: none, the listener is non-blocking.
    Fd connection(os().accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EAGAIN) return {};
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE) return too_many_descriptors();
      return Status(ZERO_ERR_SYSTEM, text("accepting a connection: ", errno_text(errno)));
    }
    const Identity who = ZERO_TRY(identity_of(connection.get()));
    if (who.uid != os().geteuid()) {
      log(ZERO_LOG_WARNING,
          text(meeting_.title, ": a process of user ", who.uid, " was turned away"));
      continue;
    }
    if (strangers_.size() == most) drop_a_stranger();
    Stranger& stranger = strangers_.emplace_back();
    stranger.connection = std::move(connection);
    stranger.pid = who.pid;
    stranger.since_ms = now_ms();
  }
  return {};
}

/// Who has said nothing yet goes first, so that many who never do cannot crowd out a rank.
void Root::drop_a_stranger() {
  const auto silent = std::find_if(strangers_.begin(), strangers_.end(),
                                   [](const Stranger& one) { return !one.spoke; });
  strangers_.erase(silent == strangers_.end() ? strangers_.begin() : silent);
}

Status Root::hear_strangers() {
  for (size_t i = 0; i < strangers_.size();) {
    bool keep = false;
    ZERO_TRY(hear(strangers_[i], &keep));
    if (keep)
      ++i;
    else
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

Status Root::hear(Stranger& stranger, bool* keep) {
  constexpr size_t kMost = 2;  // descriptors of a hello
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  const int error =
      try_receive(stranger.connection.get(), buffer.bytes, &buffer.got, &descriptors, kMost);
  if (error == EAGAIN) {
    *keep = now_ms() - stranger.since_ms < kStrangerMs;
    return {};
  }
  if (error == ECONNRESET) return lost(stranger);
  const bool first = !std::exchange(stranger.spoke, true);
  if (error == EMFILE) return too_many_descriptors();
  if (error != 0) return {};
  return first ? hear_hello(stranger, buffer, std::move(descriptors), keep)
               : hear_answer(stranger, buffer);
}

Status Root::hear_hello(Stranger& stranger, const MessageBuffer& buffer,
                        std::vector<Fd> descriptors, bool* keep) {
  Prefix prefix(Kind::hello);
  if (!buffer.read_prefix(&prefix) || prefix.kind != Kind::hello) return {};
  if (!prefix.same_version() && users_look_alike()) return {};  // of whoever it is
  if (!prefix.same_version())
    return meeting_.failed(text("process ", stranger.pid, " has ", version_text(prefix),
                                ", rank 0 (process ", members_[0].pid, ") has ",
                                version_text(Prefix(Kind::hello))));
  if (!buffer.read(&stranger.hello) || descriptors.empty()) return {};
  if (stranger.pid == 0)  // of another pid name space
    stranger.pid = static_cast<pid_t>(stranger.hello.pid);
  Result<Guest> guest = meet(stranger, std::move(descriptors));
  if (guest.failure().code() == ZERO_ERR_COMM) {
    log(ZERO_LOG_WARNING, text(meeting_.title, ": process ", stranger.pid,
                               " was turned away: ", guest.failure().text()));
    return {};
  }
  stranger.guest = ZERO_TRY(std::move(guest));
  const Status sent = challenge(stranger);
  *keep = sent.ok();
  return sent.code() == ZERO_ERR_COMM ? lost(stranger) : sent;
}

/// A rank that dies before it has answered ends the rendezvous as well, but where users look alike:
/// there only who has answered is a rank.
Status Root::lost(const Stranger& stranger) const {
  if (!stranger.guest.peer || users_look_alike() || !ended_by_now(*stranger.guest.peer)) return {};
  ZERO_TRY(disagreement(stranger));
  return meeting_.failed(text("rank ", stranger.hello.rank, " (process ", stranger.pid, ") died"));
}

Status Root::challenge(Stranger& stranger) {
  Challenge message;
  ZERO_TRY(draw_random(message.nonce));
  stranger.nonce = message.nonce;
  message.proof = prove(meeting_.key(), Role::root, stranger.hello.rank,
                        {stranger.hello.nonce, stranger.nonce});
  return send_message(stranger.connection.get(), as_message(message), {}, vigil());
}

Status Root::hear_answer(Stranger& stranger, const MessageBuffer& buffer) {
  Answer answer;
  if (!buffer.read(&answer)) return {};
  if (!proves(answer.proof, meeting_.key(), Role::guest, stranger.hello.rank,
              {stranger.hello.nonce, stranger.nonce})) {
    refuse(stranger.connection.get(),
           meeting_.failed(text(name_of(0), ", which has this name, is of another job")).text());
    log(ZERO_LOG_WARNING,
        text(meeting_.title, ": process ", stranger.pid, " of another job was turned away"));
    return {};
  }
  ZERO_TRY(disagreement(stranger));
  return seat(stranger);
}

/// What is wrong with a sound hello, if anything is.
Status Root::disagreement(const Stranger& stranger) const {
  const Hello& hello = stranger.hello;
  const std::string who = text("rank ", hello.rank, " (process ", stranger.pid, ")");
  if (hello.world != meeting_.world)
    return meeting_.failed(text(who, " says there are ", hello.world, " ranks, rank 0 (process ",
                                members_[0].pid, ") says ", meeting_.world));
  if (hello.rank < 0 || hello.rank >= meeting_.world)
    return meeting_.failed(text(who, " came, but rank 0 (process ", members_[0].pid,
                                ") knows of ranks 0 to ", meeting_.world - 1, " only"));
  if (const std::string device = wire_text(hello.device); device != meeting_.device)
    return meeting_.failed(text(who, " has its memory on ", device, ", rank 0 (process ",
                                members_[0].pid, ") on ", meeting_.device));
  const Member& member = members_[static_cast<size_t>(hello.rank)];
  if (hello.rank == 0 || member.peer)
    return meeting_.failed(text("rank ", hello.rank, " came twice: as process ", member.pid,
                                " and as process ", stranger.pid));
  return {};
}

/// Only who has a life page is a rank, and may end the rendezvous by what it says. ZERO_ERR_COMM
/// where what came is none; another failure is rank 0's own.
Result<Guest> Root::meet(const Stranger& stranger, std::vector<Fd> descriptors) const {
  Guest guest;
  guest.page = std::move(descriptors[0]);
  if (descriptors.size() > 1) guest.pidfd = std::move(descriptors[1]);
  Fd copy(guest.pidfd.valid() ? os().fcntl(guest.pidfd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (guest.pidfd.valid() && !copy.valid()) return too_many_descriptors();
  guest.peer = ZERO_TRY(Peer::meet(guest.page.get(), std::move(copy), stranger.pid));
  return guest;
}

Status Root::seat(Stranger& stranger) {
  const Hello& hello = stranger.hello;
  Member& member = members_[static_cast<size_t>(hello.rank)];
  member.connection = std::move(stranger.connection);
  member.pid = stranger.pid;
  member.peer = std::move(stranger.guest.peer);
  member.page = std::move(stranger.guest.page);
  member.pidfd = std::move(stranger.guest.pidfd);
  ++present_;
  const int64_t remaining_ms = std::clamp<int64_t>(hello.remaining_ms, 0, meeting_.remaining_ms());
  const int64_t deadline_ns = now_ns() + remaining_ms * 1'000'000;
  if (deadline_ns < deadline_ns_) {
    deadline_ns_ = deadline_ns;
    limit_ms_ = hello.limit_ms;
  }
  os().reached("rendezvous.heard");
  const Status sent = send_message(member.connection.get(), as_message(Ack()),
                                   life_descriptors(*meeting_.life), vigil());
  return sent.code() == ZERO_ERR_COMM ? gone(hello.rank) : sent;
}

Status Root::hear_members() {
  for (int32_t r = 1; r < meeting_.world; ++r)
    if (members_[static_cast<size_t>(r)].connection.valid()) ZERO_TRY(hear_member(r));
  return {};
}

/// A member says nothing until it is welcome, and then that it is ready.
Status Root::hear_member(int32_t rank) {
  Member& member = members_[static_cast<size_t>(rank)];
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  const int error = try_receive(member.connection.get(), buffer.bytes, &buffer.got, &descriptors);
  if (error == EAGAIN) return {};
  if (error == ECONNRESET) return gone(rank);
  if (error != 0)
    return Status(ZERO_ERR_SYSTEM, text("receiving from rank ", rank, ": ", errno_text(error)));
  Ready ready;
  if (!control_ || member.ready || !buffer.read(&ready))
    return meeting_.failed(text(name_of(rank), " sent something that is no answer"));
  if (ready.code != ZERO_OK)
    return meeting_.failed(text(name_of(rank), ": ", wire_text(ready.text)));
  member.ready = true;
  return {};
}

Status Root::gone(int32_t rank) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  return meeting_.failed(
      text(name_of(rank), ended_by_now(*member.peer) ? " died" : " gave up its rendezvous"));
}

/// Ranks that have not come yet would wait for nothing until their deadline.
void Root::linger(const std::string& sentence) {
  const int64_t until_ms = now_ms() + std::min(kLingerMs, (deadline_ns_ - now_ns()) / 1'000'000);
  while (std::count(told_.begin(), told_.end(), true) < expected_ - 1 && now_ms() < until_ms) {
    (void)turn();
    std::erase_if(strangers_,
                  [&](Stranger& stranger) { return !still_silent(stranger, sentence); });
    if (!meeting_.check().ok() || !accept_strangers().ok()) return;
  }
}

bool Root::still_silent(const Stranger& stranger, const std::string& sentence) {
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  const int error = try_receive(stranger.connection.get(), buffer.bytes, &buffer.got, &descriptors);
  if (error == EAGAIN) return true;
  if (error == EMFILE) refuse(stranger.connection.get(), sentence);
  Hello hello;
  if (!buffer.read(&hello) || hello.rank <= 0 || hello.rank >= expected_) return false;
  // One that has been told and comes again means to begin anew: it tries on until this is over.
  const size_t rank = static_cast<size_t>(hello.rank);
  if (!told_[rank]) refuse(stranger.connection.get(), sentence);
  told_[rank] = true;
  return false;
}

}  // namespace zero::local
