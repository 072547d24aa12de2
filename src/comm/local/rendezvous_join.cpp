// SPDX-License-Identifier: Apache-2.0
// The rendezvous as every rank but rank 0 sees it.
#include <algorithm>
#include <cerrno>

#include "base/secret.h"
#include "base/text.h"
#include "comm/local/process.h"
#include "comm/local/rendezvous.h"
#include "comm/local/wire.h"

namespace zero::local {
namespace {

constexpr int kFirstRetryMs = 1;
constexpr int kLastRetryMs = 20;
constexpr int kDeathMs = 100;  // until a pidfd tells of a process whose socket is closed

class Joiner {
 public:
  explicit Joiner(const Meeting& meeting) : meeting_(meeting) {}

  Result<Seat> run() {
    ZERO_TRY(find_root());
    os().reached("rendezvous.accepted");
    ZERO_TRY(take_welcome());
    os().reached("rendezvous.welcome");
    Result<Seat> seat = take_seat();
    ZERO_TRY(report(seat.failure()));
    seat->connections.push_back(std::move(connection_));
    os().reached("rendezvous.ready");
    return seat;
  }

 private:
  Status find_root();
  Result<bool> introduce();
  Status answer(const Hello& hello);
  Status take_welcome();
  Status take_processes(const Processes& part, std::span<Fd> descriptors);
  Result<Seat> take_seat();
  Status report(const Status& outcome);

  Status hear();
  Status read_unexpected() const;
  Vigil vigil();
  Status explain(Status failure) const;
  Status never_came() const;
  std::string root_name() const { return text("rank 0 (process ", root_pid_, ")"); }

  const Meeting& meeting_;
  Fd connection_;
  pid_t root_pid_ = 0;
  std::shared_ptr<Peer> root_;  // once it has answered
  Welcome welcome_;
  Fd control_;
  std::vector<std::shared_ptr<Peer>> processes_;
  MessageBuffer buffer_;
  std::vector<Fd> descriptors_;
};

/// Try until rank 0 is there and answers.
Status Joiner::find_root() {
  for (int retry_ms = kFirstRetryMs;; retry_ms = std::min(2 * retry_ms, kLastRetryMs)) {
    ZERO_TRY(meeting_.check());
    switch (const int error = connect_to(meeting_.address, &connection_)) {
      case 0:
        if (ZERO_TRY(introduce())) return {};
        break;
      case ECONNREFUSED:
      case EAGAIN:  // more ranks than its queue holds
      case EINTR:
        break;
      default:
        return Status(ZERO_ERR_SYSTEM, text("connecting: ", errno_text(error)));
    }
    const int64_t left_ms = meeting_.remaining_ms();
    if (left_ms == 0) return never_came();
    // Wait: a slice of rendezvous_ms.
    sleep_ms(static_cast<int>(std::min<int64_t>(retry_ms, left_ms)));
  }
}

/// True once rank 0 has taken this rank's hello; false if it went away meanwhile, which an earlier
/// comm's rank 0 does that was about to close.
Result<bool> Joiner::introduce() {
  os().reached("rendezvous.connected");
  const Identity root = ZERO_TRY(identity_of(connection_.get()));
  if (root.uid != os().geteuid()) {
    return meeting_.failed(text("the name is held by a process of user ", root.uid));
  }
  root_pid_ = root.pid;
  Fd pidfd(os().pidfd_open(root.pid, 0));

  Hello hello = meeting_.hello();
  ZERO_TRY(draw_random(hello.nonce));
  Status heard =
      send_message(connection_.get(), as_message(hello), life_descriptors(*meeting_.life), vigil());
  os().reached("rendezvous.greeted");
  if (heard.ok()) heard = hear();
  if (heard.ok()) heard = answer(hello);
  if (heard.code() == ZERO_ERR_COMM) {
    if (pidfd.valid() && pidfd_ended(pidfd.get(), kDeathMs))
      return meeting_.failed(text(root_name(), " died"));
    return false;
  }
  ZERO_TRY(explain(std::move(heard)));

  Ack ack;
  if (!buffer_.read(&ack) || descriptors_.empty()) return read_unexpected();
  Fd root_pidfd = descriptors_.size() > 1 ? std::move(descriptors_[1]) : Fd();
  root_ = ZERO_TRY(Peer::meet(descriptors_[0].get(), std::move(root_pidfd), root_pid_));
  return true;
}

/// And hears what rank 0 makes of it.
Status Joiner::answer(const Hello& hello) {
  const std::optional<Answer> message = ZERO_TRY(answer_to(buffer_, hello, meeting_, root_pid_));
  if (!message) return read_unexpected();
  Status sent = send_message(connection_.get(), as_message(*message), {}, vigil());
  // Rank 0 may have gone already: what it said before is still here.
  return sent.ok() || sent.code() == ZERO_ERR_COMM ? hear() : sent;
}

Status Joiner::take_welcome() {
  ZERO_TRY(explain(hear()));
  if (!buffer_.read(&welcome_) || descriptors_.size() != 1 || welcome_.processes == 0 ||
      welcome_.processes > static_cast<uint32_t>(meeting_.world))
    return read_unexpected();
  control_ = std::move(descriptors_[0]);
  while (processes_.size() < welcome_.processes) {
    ZERO_TRY(explain(hear()));
    Processes part;
    if (!buffer_.read(&part)) return read_unexpected();
    ZERO_TRY(take_processes(part, descriptors_));
  }
  return {};
}

Status Joiner::take_processes(const Processes& part, std::span<Fd> descriptors) {
  const auto incomplete = [&] {
    return meeting_.failed("rank 0 sent an incomplete list of processes");
  };
  if (part.first != processes_.size() || part.count == 0 || part.count > Processes::kMost ||
      part.count > welcome_.processes - part.first)
    return incomplete();
  size_t next = 0;
  for (uint32_t i = 0; i < part.count; ++i) {
    if (next + (part.has_pidfd[i] ? 2 : 1) > descriptors.size()) return incomplete();
    const Fd page = std::move(descriptors[next++]);
    Fd pidfd = part.has_pidfd[i] ? std::move(descriptors[next++]) : Fd();
    processes_.push_back(ZERO_TRY(Peer::meet(page.get(), std::move(pidfd), part.pid[i])));
  }
  return {};
}

/// Check and map what came.
Result<Seat> Joiner::take_seat() {
  const size_t bytes = control_bytes(meeting_.world);
  ZERO_TRY(check_segment(control_.get(), bytes));
  std::shared_ptr<Mapping> mapping = ZERO_TRY(map_segment(control_.get(), bytes, Access::hidden));
  const Header& header = Control::header_of(mapping->data());
  if (header.magic != kControlMagic || header.world != meeting_.world ||
      header.generation != welcome_.generation)
    return meeting_.failed("rank 0 sent the memory of another comm");

  std::vector<std::shared_ptr<Peer>> peers;
  for (int32_t r = 0; r < meeting_.world; ++r) {
    const uint32_t process = Control::slot_of(mapping->data(), r).process.load();
    if (process >= processes_.size())
      return meeting_.failed(text("rank 0 named process ", process, " of ", processes_.size()));
    peers.push_back(processes_[process]);
  }
  os().reached("rendezvous.mapped");
  Seat seat;
  seat.control = std::make_unique<Control>(std::move(mapping), meeting_.rank, meeting_.world,
                                           std::move(peers));
  return seat;
}

/// Rank 0 waits for this, good or bad, and the last step waits for rank 0.
Status Joiner::report(const Status& outcome) {
  Ready ready;
  ready.code = outcome.code();
  put_wire_text(ready.text, outcome.text());
  Status sent = send_message(connection_.get(), as_message(ready), {}, vigil());
  ZERO_TRY(Status(outcome));
  if (sent.code() == ZERO_ERR_COMM) {
    // Rank 0 has gone already; what it said before is still here.
    Status verdict = hear();
    if (verdict.code() == ZERO_ERR_RENDEZVOUS) return verdict;
  }
  return explain(std::move(sent));
}

Status Joiner::hear() {
  Result<size_t> got = receive_message(connection_.get(), buffer_.bytes, &descriptors_, vigil());
  // Rank 0 may have said why, and ended, since the last look at the connection.
  size_t last_word = 0;
  if (!got.ok() && try_receive(connection_.get(), buffer_.bytes, &last_word, &descriptors_) == 0)
    got = last_word;
  buffer_.got = ZERO_TRY(std::move(got));
  Refusal refusal;
  if (buffer_.read(&refusal)) return Status(ZERO_ERR_RENDEZVOUS, wire_text(refusal.text));
  return {};
}

Status Joiner::read_unexpected() const {
  Prefix prefix(Kind::refusal);
  if (buffer_.read_prefix(&prefix) && !prefix.same_version())
    return meeting_.failed(text(root_name(), " has ", version_text(prefix), ", rank ",
                                meeting_.rank, " has ", version_text(Prefix(Kind::hello))));
  return meeting_.failed(text(root_name(), " sent something that is no answer"));
}

Vigil Joiner::vigil() {
  return {meeting_.deadline_ns + kVerdictMs * 1'000'000, [this]() -> Status {
            ZERO_TRY(meeting_.check());
            if (root_ && root_->ask()) return meeting_.failed(text(root_name(), " died"));
            return {};
          }};
}

/// A socket's failure in the rendezvous's words.
Status Joiner::explain(Status failure) const {
  switch (failure.code()) {
    case ZERO_ERR_COMM:
      return meeting_.failed(
          text(root_name(), root_ && ended_by_now(*root_) ? " died" : " gave up its rendezvous"));
    case ZERO_ERR_TIMEOUT:
      return meeting_.failed(text("rank 0 (process ", root_pid_, ", ", process_state(root_pid_),
                                  ") did not answer within ", meeting_.limit_ms, " ms"));
    default:
      return failure;
  }
}

Status Joiner::never_came() const {
  return meeting_.failed(
      text("rank 0 never came within ", meeting_.limit_ms, " ms", meeting_.whereabouts()));
}

}  // namespace

Result<Seat> meet_at_root(const Meeting& meeting) {
  Joiner joiner(meeting);
  return joiner.run();
}

}  // namespace zero::local
