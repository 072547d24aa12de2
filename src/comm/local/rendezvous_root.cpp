// SPDX-License-Identifier: Apache-2.0
// The rendezvous as rank 0 sees it: it takes the name, waits for the others
// (rendezvous_guests.cpp), makes the comm and hands it out, or tells everybody why there will be
// none.
#include "comm/local/rendezvous_root.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/secret.h"
#include "comm/local/process.h"

namespace zero::local {
namespace {

constexpr int64_t kNameMs = 1'000;  // for another holder of the name to let go of it
constexpr int kRetryMs = 2;

/// A connection that is closed over unread messages takes what was sent on it along.
void drain(int connection) {
  MessageBuffer buffer;
  std::vector<Fd> descriptors;
  while (try_receive(connection, buffer.bytes, &buffer.got, &descriptors) == 0) {
  }
}

}  // namespace

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
    if (error != EADDRINUSE) return Status(ZERO_ERR_SYSTEM, text("listening: ", errno_text(error)));
    if (!ZERO_TRY(contest_name(until_ms)) || now_ms() >= until_ms)
      return meeting_.failed("another process holds this name");
    // Wait: a slice of kNameMs.
    sleep_ms(kRetryMs);
  }
  os().reached("rendezvous.listening");
  return {};
}

/// Somebody else holds the name. If that is another rank 0, it hears that there are two of it, and
/// says so. True if the holder went away.
Result<bool> Root::contest_name(int64_t until_ms) {
  Fd connection;
  if (connect_to(meeting_.address, &connection) != 0) return true;
  const Identity holder = ZERO_TRY(identity_of(connection.get()));
  if (holder.uid != os().geteuid())
    return meeting_.failed(text("the name is held by a process of user ", holder.uid));
  Hello hello = meeting_.hello();
  ZERO_TRY(draw_random(hello.nonce));
  const Vigil vigil{until_ms * 1'000'000, meeting_.check};
  MessageBuffer buffer;
  const auto hear = [&]() -> Status {
    std::vector<Fd> descriptors;
    buffer.got = ZERO_TRY(receive_message(connection.get(), buffer.bytes, &descriptors, vigil));
    return {};
  };
  Status heard =
      send_message(connection.get(), as_message(hello), life_descriptors(*meeting_.life), vigil);
  if (heard.ok()) heard = hear();
  if (heard.ok()) {
    const std::optional<Answer> answer = ZERO_TRY(answer_to(buffer, hello, meeting_, holder.pid));
    if (answer) heard = send_message(connection.get(), as_message(*answer), {}, vigil);
    if (answer && heard.ok()) heard = hear();
  }
  Refusal refusal;
  if (buffer.read(&refusal)) return Status(ZERO_ERR_RENDEZVOUS, wire_text(refusal.text));
  if (heard.code() == ZERO_ERR_COMM) return true;
  if (heard.code() == ZERO_ERR_TIMEOUT || heard.ok())
    return meeting_.failed(text("process ", holder.pid, " (", process_state(holder.pid),
                                ") holds this name: is that another rank 0?"));
  return heard;
}

// ---- All are there.

Status Root::form() {
  segment_ = ZERO_TRY(make_control_segment(meeting_.world));
  Member& self = members_[0];
  self.page.reset(os().fcntl(meeting_.life->page(), F_DUPFD_CLOEXEC, 0));
  if (!self.page.valid())
    return Status(ZERO_ERR_SYSTEM, text("copying a descriptor: ", errno_text(errno)));
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
    control_->abort(kNoSteps.fail(ZERO_ERR_RENDEZVOUS, -1, meeting_.title, sentence));
    // A rank that was seated already may have been first, and may have ended for that reason.
    sentence = control_->failure().text;
    if (!mine) failure = control_->failure_status();
  }
  for (Member& member : members_) {
    if (!member.connection.valid()) continue;
    dismiss(member.connection, sentence);
    told_[static_cast<size_t>(&member - members_.data())] = true;
  }
  for (Stranger& stranger : strangers_) {
    if (!stranger.spoke) continue;
    dismiss(stranger.connection, sentence);
    const Hello& hello = stranger.hello;
    if (hello.world > 0 && hello.world <= kMaxWorld) expected_ = std::max(expected_, hello.world);
    if (hello.rank > 0 && hello.rank < expected_) told_[static_cast<size_t>(hello.rank)] = true;
  }
  std::erase_if(strangers_, [](const Stranger& one) { return one.spoke; });
  if (listener_.valid()) linger(sentence);
  return failure;
}

void Root::dismiss(Fd& connection, const std::string& sentence) {
  if (!connection.valid()) return;
  refuse(connection.get(), sentence);
  drain(connection.get());
  connection.reset();
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
  return meeting_.failed(text(late, control_ ? " did not answer within " : " never came within ",
                              limit_ms_, " ms", control_ ? "" : meeting_.whereabouts()));
}

Result<Seat> meet_as_root(const Meeting& meeting) {
  Root root(meeting);
  return root.run();
}

}  // namespace zero::local
