// SPDX-License-Identifier: Apache-2.0
// One wait in an exchange: who is missing, since when, and whether that has been long enough.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "comm/tcp/tcp.h"

namespace zero::tcp {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSliceMs = 20;
constexpr int64_t kGraceMs = 1'000;  // for rank 0 to answer a rank whose deadline has passed

}  // namespace

class TcpComm::Wait {
 public:
  Wait(TcpComm& comm, const Patience& patience);

  /// Breaks the comm where there is a reason to: a rank that left, the deadline. A rank other than
  /// 0 only asks rank 0 to, and does it alone if that does not answer. A wait that has become long
  /// answers once with a warning.
  std::string look();

  int slice_ms() const;

 private:
  std::vector<Missing> find_missing() const;
  std::string names_of(std::span<const Missing> missing) const;
  void look_for_left();
  void tell_guests();
  void be_late();

  TcpComm& comm_;
  const Patience& patience_;
  Watch watch_;
  std::vector<Missing> missing_;
  int64_t told_ns_;
  int64_t asked_ns_ = 0;  // when this rank asked rank 0 to give up
};

TcpComm::Wait::Wait(TcpComm& comm, const Patience& patience)
    : comm_(comm), patience_(patience), watch_(patience), told_ns_(watch_.now_ns()) {}

std::vector<Missing> TcpComm::Wait::find_missing() const {
  std::vector<Missing> missing;
  const auto add = [&](int32_t rank, int64_t sign_ns) {
    missing.push_back({rank, watch_.since_ns(sign_ns)});
  };
  if (comm_.rank() == 0) {
    const bool answered = comm_.answered_ == comm_.sequence_;
    for (const Peer& peer : comm_.peers_)
      if (answered ? peer.link->unsent() : !peer.record) add(peer.rank, peer.sign_ns);
  } else if (comm_.awaited_) {
    add(comm_.awaited_->rank, comm_.awaited_->quiet_since_ns);
  } else {
    add(0, comm_.peers_[0].sign_ns);
  }
  return missing;
}

std::string TcpComm::Wait::names_of(std::span<const Missing> missing) const {
  std::vector<std::string> names;
  for (const Missing& one : missing)
    names.push_back(comm_.awaited_ ? comm_.awaited_->name : comm_.peer(one.rank).name);
  return list_some(names);
}

void TcpComm::Wait::look_for_left() {
  for (const Peer& peer : comm_.peers_)
    if (peer.left && (comm_.rank() != 0 || !peer.record))
      return comm_.break_for(ZERO_ERR_DESYNC, peer.rank,
                             text("rank ", peer.rank, " has freed its comm"));
}

std::string TcpComm::Wait::look() {
  const int64_t absent_ns = watch_.look();
  for (Peer& peer : comm_.peers_) peer.sign_ns += absent_ns;
  if (!comm_.decided()) look_for_left();
  if (comm_.aborted()) return {};
  missing_ = find_missing();
  if (comm_.rank() == 0) tell_guests();
  be_late();
  if (missing_.empty() || !watch_.warns()) return {};
  return watch_.warning(comm_.rank(), names_of(missing_));
}

/// So that a rank whose deadline comes first can name who is missing.
void TcpComm::Wait::tell_guests() {
  const int64_t now = watch_.now_ns();
  const int64_t interval = std::clamp<int64_t>(patience_.limit_ms / 4, 5, 1'000) * kMillisecond;
  if (missing_.empty() || now - told_ns_ < interval) return;
  told_ns_ = now;
  const Missing& quietest =
      *std::min_element(missing_.begin(), missing_.end(),
                        [](const Missing& a, const Missing& b) { return a.since_ns < b.since_ns; });
  Waiting words{quietest.rank, 0, (now - quietest.since_ns) / kMillisecond, {}};
  put_text(words.name, comm_.peer(quietest.rank).name);
  for (Peer& peer : comm_.peers_)
    if (peer.record) peer.link->send(FrameKind::waiting, comm_.sequence_, as_payload(words));
}

void TcpComm::Wait::be_late() {
  const std::vector<Missing> late = watch_.late_of(missing_);
  if (late.empty()) return;
  const int32_t rank = late[0].rank;
  const std::string sentence = watch_.late(names_of(late));
  if (comm_.rank() == 0) return comm_.break_for(ZERO_ERR_TIMEOUT, rank, sentence);
  const int64_t now = watch_.now_ns();
  if (asked_ns_ == 0) {
    asked_ns_ = now;
    const Cause cause = pack(comm_.make_failure(ZERO_ERR_TIMEOUT, rank, sentence));
    comm_.peers_[0].link->send(FrameKind::cause, comm_.sequence_, as_payload(cause));
  }
  if (now - asked_ns_ >= std::min(patience_.limit_ms, kGraceMs) * kMillisecond)
    comm_.break_for(ZERO_ERR_TIMEOUT, rank, sentence);
}

int TcpComm::Wait::slice_ms() const {
  return static_cast<int>(std::max<int64_t>(watch_.slice_ns(missing_, kSliceMs) / kMillisecond, 1));
}

/// What `source` sends, or all do, to all but a single source.
Status TcpComm::round(std::span<const std::byte> mine, int32_t source, std::span<std::byte> out,
                      const Patience& patience) {
  std::unique_lock lock(mutex_);
  if (aborted()) return failure_status();
  where_ = patience.where();
  ++sequence_;
  awaited_.reset();
  records_.reset();
  if (rank() != 0) peers_[0].link->send(FrameKind::record, sequence_, mine);
  os().reached("exchange.arrived");
  Wait wait(*this, patience);
  for (;;) {
    pump();
    if (aborted() && !decided()) return failure_status();
    if (advance(mine, source, out)) return {};
    const std::string warning = wait.look();
    if (aborted() && !decided()) return failure_status();
    if (!warning.empty()) {  // the callback may call anything
      lock.unlock();
      log(ZERO_LOG_WARNING, warning);
      lock.lock();
    }
    sleep(lock, wait.slice_ms());
  }
}

}  // namespace zero::tcp
