// SPDX-License-Identifier: Apache-2.0
// The rendezvous as rank 0 sees it: who connects is a stranger until its hello makes sense. Strangers are
// dropped and end nothing; a rank that disagrees ends the rendezvous for all.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "comm/local/rendezvous.h"
#include "comm/local/wire.h"

namespace zero::local {
namespace {

constexpr int64_t kNameMs = 1'000;      // for another holder of the name to let go of it
constexpr int64_t kStrangerMs = 5'000;  // for a hello
constexpr int64_t kLingerMs = 1'000;      // to tell ranks that come after the rendezvous has failed
constexpr int kAcceptsAtOnce = 64;
constexpr int kRetryMs = 2;

struct Stranger {
  Fd connection;
  pid_t pid;
  int64_t since_ms;
};

struct Member {
  Fd connection;
  pid_t pid = 0;
  std::shared_ptr<Peer> peer;
  Fd page;
  Fd pidfd;
  bool ready = false;
};

/// A connection that is closed over unread messages takes what was sent on it along.
void drain(int connection) {
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  while (try_receive(connection, buffer.bytes, &buffer.got, &descriptors) == 0) {
  }
}

class Root {
 public:
  explicit Root(const Meeting& meeting)
      : meeting_(meeting),
        members_(static_cast<size_t>(meeting.world)),
        expected_(meeting.world),
        told_(kMaxWorld, false),
        deadline_ns_(meeting.deadline_ns),
        limit_ms_(meeting.limit_ms) {
    members_[0].pid = os().getpid();
  }

  Result<Seat> run();

 private:
  Status take_name();
  Result<bool> contest_name(int64_t until_ms);

  Status gather();
  Status turn();
  Status accept_strangers();
  Status hear_strangers();
  Status hear(Stranger& stranger, bool* keep);
  Status seat(Stranger& stranger, const Hello& hello, std::vector<Fd> descriptors);
  Status disagreement(const Stranger& stranger, const Hello& hello) const;
  Status watch_members();
  Status hear_members();
  Status hear_member(int32_t rank);
  Status gone(int32_t rank) const;

  Status form();
  Status welcome(int32_t rank);
  Status send_processes(int32_t rank);
  Status collect_ready();

  Status dismiss(Status failure);
  void linger(const std::string& sentence);
  bool still_silent(const Stranger& stranger, const std::string& sentence);
  void refuse(int connection, const std::string& sentence) const;

  Vigil vigil();
  Status deadline_passed() const;
  std::string name_of(int32_t rank) const {
    return text("rank ", rank, " (process ", members_[static_cast<size_t>(rank)].pid, ")");
  }

  const Meeting& meeting_;
  Fd listener_;
  std::vector<Stranger> strangers_;
  std::vector<Member> members_;  // by rank
  int32_t expected_;             // how many ranks there may be: some may say more than this one
  std::vector<bool> told_;       // by rank: that there will be no comm
  int32_t present_ = 1;
  int64_t deadline_ns_;  // the earliest of all ranks', and how long that rank's whole limit was
  int64_t limit_ms_;
  ControlSegment segment_;
  std::vector<const Member*> processes_;  // one member of each
  std::unique_ptr<Control> control_;
};

Result<Seat> Root::run() {
  ZERO_TRY(take_name());
  Status outcome = gather();
  if (outcome.ok()) outcome = form();
  if (outcome.ok()) outcome = collect_ready();
  if (!outcome.ok()) return dismiss(std::move(outcome));
  Seat seat;
  seat.control = std::move(control_);
  for (Member& member : members_) seat.connections.push_back(std::move(member.connection));
  return seat;
}

// ---- The name.

Status Root::take_name() {
  const int64_t until_ms = now_ms() + std::min(kNameMs, meeting_.remaining_ms());
  for (;;) {
    ZERO_TRY(meeting_.check());
    const int error = listen_at(meeting_.address, &listener_);
    if (error == 0) break;
    if (error != EADDRINUSE)
      return Status(ZERO_ERR_SYSTEM, text(meeting_.title, ": listening: ", errno_text(error)));
    if (!ZERO_TRY(contest_name(until_ms)) || now_ms() >= until_ms)
      return meeting_.failed("another process holds this name");
    sleep_ms(kRetryMs);
  }
  os().reached("rendezvous.listening");
  return {};
}

/// Somebody else holds the name. If that is another rank 0, it hears that there are two of it, and says so.
/// True if the holder went away.
Result<bool> Root::contest_name(int64_t until_ms) {
  Fd connection;
  if (connect_to(meeting_.address, &connection) != 0) return true;
  const Identity holder = ZERO_TRY(identity_of(connection.get()));
  if (holder.uid != os().geteuid())
    return meeting_.failed(text("the name is held by a process of user ", holder.uid));
  Hello hello;
  hello.world = meeting_.world;
  hello.pid = os().getpid();
  hello.limit_ms = meeting_.limit_ms;
  hello.remaining_ms = meeting_.remaining_ms();
  const Vigil vigil{until_ms * 1'000'000, meeting_.check};
  Status heard =
      send_message(connection.get(), as_message(hello), life_descriptors(*meeting_.life), vigil);
  MessageBuffer buffer;
  if (heard.ok()) {
    std::vector<Fd> descriptors;
    Result<size_t> got = receive_message(connection.get(), buffer.bytes, &descriptors, vigil);
    if (got.ok()) buffer.got = *got;
    heard = std::move(got).status();
  }
  Refusal refusal;
  if (buffer.read(&refusal)) return Status(ZERO_ERR_RENDEZVOUS, wire_text(refusal.text));
  if (heard.code() == ZERO_ERR_COMM) return true;
  if (heard.code() == ZERO_ERR_TIMEOUT || heard.ok())
    return meeting_.failed(text("process ", holder.pid, " (", process_state(holder.pid),
                                ") holds this name: is that another rank 0?"));
  return heard;
}

// ---- Who comes.

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
    Fd connection(os().accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EAGAIN) return {};
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return Status(ZERO_ERR_SYSTEM,
                    text(meeting_.title, ": accepting a connection: ", errno_text(errno)));
    }
    const Identity who = ZERO_TRY(identity_of(connection.get()));
    if (who.uid != os().geteuid()) {
      log(ZERO_LOG_WARNING, text(meeting_.title, ": a process of user ", who.uid, " was turned away"));
      continue;
    }
    if (strangers_.size() == most) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(connection), who.pid, now_ms()});
  }
  return {};
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
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  const int error = try_receive(stranger.connection.get(), buffer.bytes, &buffer.got, &descriptors);
  if (error == EAGAIN) {
    *keep = now_ms() - stranger.since_ms < kStrangerMs;
    return {};
  }
  Prefix prefix(Kind::hello);
  if (error != 0 || !buffer.read_prefix(&prefix) || prefix.kind != Kind::hello) return {};
  if (!prefix.same_version()) {
    Status failure = meeting_.failed(text("process ", stranger.pid, " has ", version_text(prefix),
                                          ", rank 0 (process ", members_[0].pid, ") has ",
                                          version_text(Prefix(Kind::hello))));
    refuse(stranger.connection.get(), failure.text());
    return failure;
  }
  Hello hello;
  if (!buffer.read(&hello) || descriptors.empty() || descriptors.size() > 2) return {};
  if (stranger.pid == 0) stranger.pid = static_cast<pid_t>(hello.pid);  // of another pid name space
  Status failure = disagreement(stranger, hello);
  if (failure.ok()) return seat(stranger, hello, std::move(descriptors));
  refuse(stranger.connection.get(), failure.text());
  if (hello.world <= kMaxWorld) expected_ = std::max(expected_, hello.world);
  if (hello.rank > 0 && hello.rank < expected_) told_[static_cast<size_t>(hello.rank)] = true;
  return failure;
}

/// What is wrong with a sound hello, if anything is.
Status Root::disagreement(const Stranger& stranger, const Hello& hello) const {
  const std::string who = text("rank ", hello.rank, " (process ", stranger.pid, ")");
  if (hello.world != meeting_.world)
    return meeting_.failed(text(who, " says there are ", hello.world, " ranks, rank 0 (process ",
                                members_[0].pid, ") says ", meeting_.world));
  if (hello.rank < 0 || hello.rank >= meeting_.world)
    return meeting_.failed(text(who, " came, but rank 0 (process ", members_[0].pid,
                                ") knows of ranks 0 to ", meeting_.world - 1, " only"));
  const Member& member = members_[static_cast<size_t>(hello.rank)];
  if (hello.rank == 0 || member.peer)
    return meeting_.failed(text("rank ", hello.rank, " came twice: as process ", member.pid,
                                " and as process ", stranger.pid));
  return {};
}

Status Root::seat(Stranger& stranger, const Hello& hello, std::vector<Fd> descriptors) {
  Fd pidfd = descriptors.size() > 1 ? std::move(descriptors[1]) : Fd();
  Fd copy(pidfd.valid() ? os().fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  Result<std::shared_ptr<Peer>> peer = Peer::meet(descriptors[0].get(), std::move(copy), stranger.pid);
  if (!peer.ok()) {
    log(ZERO_LOG_WARNING, text(meeting_.title, ": process ", stranger.pid, " was turned away: ",
                               peer.failure().text()));
    return {};
  }
  Member& member = members_[static_cast<size_t>(hello.rank)];
  member.connection = std::move(stranger.connection);
  member.pid = stranger.pid;
  member.peer = *peer;
  member.page = std::move(descriptors[0]);
  member.pidfd = std::move(pidfd);
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
  if (error != 0) return gone(rank);
  Ready ready;
  if (!control_ || member.ready || !buffer.read(&ready))
    return meeting_.failed(text(name_of(rank), " sent something that is no answer"));
  if (ready.code != ZERO_OK) return meeting_.failed(text(name_of(rank), ": ", wire_text(ready.text)));
  member.ready = true;
  return {};
}

Status Root::gone(int32_t rank) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  return meeting_.failed(
      text(name_of(rank), ended_by_now(*member.peer) ? " died" : " gave up its rendezvous"));
}

// ---- All are there.

Status Root::form() {
  segment_ = ZERO_TRY(make_control_segment(meeting_.world));
  Member& self = members_[0];
  self.page.reset(os().fcntl(meeting_.life->page(), F_DUPFD_CLOEXEC, 0));
  if (meeting_.life->pidfd() >= 0)
    self.pidfd.reset(os().fcntl(meeting_.life->pidfd(), F_DUPFD_CLOEXEC, 0));
  self.peer = ZERO_TRY(Peer::meet(self.page.get(), Fd(), self.pid));

  std::vector<std::shared_ptr<Peer>> peers;
  for (int32_t r = 0; r < meeting_.world; ++r) {
    const Member& member = members_[static_cast<size_t>(r)];
    const auto known = std::find_if(processes_.begin(), processes_.end(),
                                    [&](const Member* one) { return one->peer == member.peer; });
    Slot& slot = Control::slot_of(segment_.mapping->data(), r);
    slot.pid.store(member.pid);
    slot.process.store(static_cast<uint32_t>(known - processes_.begin()));
    if (known == processes_.end()) processes_.push_back(&member);
    peers.push_back(member.peer);
  }
  control_ = std::make_unique<Control>(segment_.mapping, 0, meeting_.world, std::move(peers));
  os().reached("rendezvous.formed");
  for (int32_t r = 1; r < meeting_.world; ++r) {
    const Status sent = welcome(r);
    if (sent.code() == ZERO_ERR_COMM) return gone(r);
    ZERO_TRY(Status(sent));
    os().reached("rendezvous.welcomed");
  }
  return {};
}

Status Root::welcome(int32_t rank) {
  Welcome message;
  message.generation = control_->generation();
  message.processes = static_cast<uint32_t>(processes_.size());
  const int descriptor = segment_.fd.get();
  ZERO_TRY(send_message(members_[static_cast<size_t>(rank)].connection.get(), as_message(message),
                        {&descriptor, 1}, vigil()));
  return send_processes(rank);
}

Status Root::send_processes(int32_t rank) {
  for (uint32_t first = 0; first < processes_.size();) {
    Processes part;
    part.first = first;
    std::vector<int> descriptors;
    while (part.count < Processes::kMost && first + part.count < processes_.size()) {
      const Member& member = *processes_[first + part.count];
      descriptors.push_back(member.page.get());
      if (member.pidfd.valid()) descriptors.push_back(member.pidfd.get());
      part.pid[part.count] = member.pid;
      part.has_pidfd[part.count] = member.pidfd.valid();
      ++part.count;
    }
    ZERO_TRY(send_message(members_[static_cast<size_t>(rank)].connection.get(), as_message(part),
                          descriptors, vigil()));
    first += part.count;
  }
  return {};
}

Status Root::collect_ready() {
  const auto is_ready = [](const Member& member) { return member.ready; };
  while (!std::all_of(members_.begin() + 1, members_.end(), is_ready)) {
    ZERO_TRY(turn());
    ZERO_TRY(hear_members());
    if (now_ns() >= deadline_ns_) return deadline_passed();
  }
  os().reached("rendezvous.all_ready");
  return {};
}

// ---- There will be no comm.

/// Tell everybody why. Those who have their place already hear it from the control segment.
Status Root::dismiss(Status failure) {
  const bool mine = failure.code() != ZERO_ERR_RENDEZVOUS;
  std::string sentence =
      mine ? meeting_.failed(text(name_of(0), ": ", failure.text())).text() : failure.text();
  if (control_) {
    Failure cause;
    cause.code = ZERO_ERR_RENDEZVOUS;
    cause.phase = meeting_.title;
    cause.text = sentence;
    control_->abort(cause);
    // A rank that was seated already may have been first, and may have ended for that reason.
    sentence = control_->failure().text;
    if (!mine) failure = control_->failure_status();
  }
  for (Member& member : members_) {
    if (!member.connection.valid()) continue;
    refuse(member.connection.get(), sentence);
    drain(member.connection.get());
    member.connection.reset();
    told_[static_cast<size_t>(&member - members_.data())] = true;
  }
  if (listener_.valid()) linger(sentence);
  return failure;
}

/// Ranks that have not come yet would wait for nothing until their deadline.
void Root::linger(const std::string& sentence) {
  const int64_t until_ms = now_ms() + std::min(kLingerMs, (deadline_ns_ - now_ns()) / 1'000'000);
  while (std::count(told_.begin(), told_.end(), true) < expected_ - 1 && now_ms() < until_ms) {
    (void)turn();
    if (!meeting_.check().ok() || !accept_strangers().ok()) return;
    std::erase_if(strangers_, [&](Stranger& stranger) { return !still_silent(stranger, sentence); });
  }
}

bool Root::still_silent(const Stranger& stranger, const std::string& sentence) {
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  if (try_receive(stranger.connection.get(), buffer.bytes, &buffer.got, &descriptors) == EAGAIN)
    return true;
  Hello hello;
  if (!buffer.read(&hello) || hello.rank <= 0 || hello.rank >= expected_) return false;
  // One that has been told and comes again means to begin anew: it tries on until this is over.
  const size_t rank = static_cast<size_t>(hello.rank);
  if (!told_[rank]) refuse(stranger.connection.get(), sentence);
  told_[rank] = true;
  return false;
}

void Root::refuse(int connection, const std::string& sentence) const {
  Refusal refusal;
  put_wire_text(refusal.text, sentence);
  (void)send_message(connection, as_message(refusal), {}, {0, [] { return Status(); }});
}

Vigil Root::vigil() {
  return {deadline_ns_, [this] { return watch_members(); }};
}

/// Names the ranks that are not there, or not ready.
Status Root::deadline_passed() const {
  std::string late;
  for (int32_t r = 1; r < meeting_.world; ++r) {
    const Member& member = members_[static_cast<size_t>(r)];
    if (control_ ? member.ready : member.peer != nullptr) continue;
    late += text(late.empty() ? "rank " : ", rank ", r);
    if (control_) late += text(" (process ", member.pid, ", ", process_state(member.pid), ")");
  }
  return meeting_.failed(
      text(late, control_ ? " did not answer within " : " never came within ", limit_ms_, " ms"));
}

}  // namespace

Result<Seat> meet_as_root(const Meeting& meeting) {
  Root root(meeting);
  return root.run();
}

}  // namespace zero::local
