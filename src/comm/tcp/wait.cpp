// SPDX-License-Identifier: Apache-2.0
// Waits in an exchange over the tree. A rank waits for its children first, and then for its parent.
// Each of these reports for whom it waits itself, so that all ranks learn which rank is late.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "comm/tcp/tcp.h"

namespace zero::tcp {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kOnTheWayMs = 100;

/// A rank's report about the rank for which it waits.
struct Words {
  int32_t rank, good_for_ms;
  int64_t quiet_ms;
  char name[128];
};

}  // namespace

/// One wait in an exchange: which ranks are missing, since when, and whether they are late.
class TcpComm::Wait {
 public:
  Wait(TcpComm& comm, const Patience& patience)
      : comm_(comm), patience_(patience), watch_(patience) {}

  /// Reads the clock, before received frames are read.
  void forgive() { comm_.forgive(watch_.look()); }
  /// Looks for reasons to break the comm: a rank that left, or the deadline. Returns a warning
  /// once, when the wait has become long.
  std::string look();

  int slice_ms() const {
    const int64_t slice_ns = watch_.slice_ns(missing_, watch_.slice_ms());
    return static_cast<int>(std::max<int64_t>(slice_ns / kMillisecond, 1));
  }

 private:
  void look_for_left();
  void find_missing();
  std::string names_of(std::span<const Missing> missing) const;
  void tell_waiting();
  void be_late();

  TcpComm& comm_;
  const Patience& patience_;
  Watch watch_;
  std::vector<Awaited> awaited_;
  std::vector<Missing> missing_;  // for the same ranks
  int32_t told_rank_ = -1;
};

std::string TcpComm::Wait::look() {
  look_for_left();
  if (comm_.aborted()) return {};
  find_missing();
  tell_waiting();
  be_late();
  if (missing_.empty() || !watch_.warns()) return {};
  return watch_.warning(comm_.called_, names_of(missing_));
}

void TcpComm::Wait::look_for_left() {
  if (comm_.decided()) return;
  for (const Peer& peer : comm_.peers_)
    if (peer.left && (comm_.is_parent(peer) || !(comm_.risen() || peer.record)))
      return comm_.blame(peer, ZERO_ERR_DESYNC, text("rank ", peer.rank, " has freed its comm"));
}

void TcpComm::Wait::find_missing() {
  awaited_.clear();
  if (comm_.risen() && !comm_.decided())
    awaited_.push_back(comm_.awaited_of(comm_.parent(), watch_.now_ns()));
  for (const Peer& child : comm_.children())
    if (comm_.risen() ? comm_.decided() && child.link->unsent() : !child.record)
      awaited_.push_back(comm_.awaited_of(child, watch_.now_ns()));
  missing_.clear();
  for (const Awaited& one : awaited_)
    missing_.push_back({one.rank, watch_.since_ns(one.quiet_since_ns)});
  if (!comm_.risen() || comm_.decided()) return;
  // The parent reports for whom it waits as soon as this rank has arrived.
  const int64_t grace_ms = std::min(patience_.limit_ms, kGraceMs);
  int64_t& since_ns = missing_[0].since_ns;
  since_ns = std::max(since_ns, comm_.risen_ns_ + (grace_ms - patience_.limit_ms) * kMillisecond);
}

std::string TcpComm::Wait::names_of(std::span<const Missing> missing) const {
  std::vector<std::string> names;
  for (const Awaited& one : awaited_)
    if (std::ranges::any_of(missing, [&](const Missing& m) { return m.rank == one.rank; }))
      names.push_back(one.name);
  return list_some(names);
}

/// Reports the missing rank to the neighbours that wait for this rank, so that the rank whose
/// deadline comes first can name it. Forwards reports of others sooner, so that they stay current.
void TcpComm::Wait::tell_waiting() {
  if (missing_.empty() || comm_.decided()) return;
  const auto quietest = std::ranges::min_element(missing_, {}, &Missing::since_ns);
  const bool news = std::exchange(comm_.news_, false) || told_rank_ != quietest->rank;
  const int64_t interval = std::clamp<int64_t>(patience_.limit_ms / 4, 5, 1'000) * kMillisecond;
  const int64_t now = watch_.now_ns();
  if (now - comm_.told_waiting_ns_ < (news ? interval / 16 : interval)) {
    comm_.news_ = news;
    return;
  }
  comm_.told_waiting_ns_ = now;
  told_rank_ = quietest->rank;
  Awaited words = awaited_[static_cast<size_t>(quietest - missing_.begin())];
  words.sequence = comm_.sequence_;
  words.quiet_since_ns = quietest->since_ns;
  for (Peer& peer : comm_.peers_)
    if (comm_.is_parent(peer) ? !comm_.risen() : comm_.risen() || peer.record)
      send_waiting(peer, words, interval);
}

void TcpComm::Wait::be_late() {
  const std::vector<Missing> late = watch_.late_of(missing_);
  if (late.empty()) return;
  comm_.propose(comm_.make_failure(ZERO_ERR_TIMEOUT, late[0].rank, watch_.late(names_of(late))),
                comm_.sequence_, std::min(patience_.limit_ms, kGraceMs));
}

// ---- The exchange.

Status TcpComm::run(const Round& round, const Patience& patience) {
  std::unique_lock lock(mutex_);
  if (aborted()) return failure_status();
  where_ = patience.where();
  ++sequence_;
  records_.reset();
  told_waiting_ns_ = now_ns();
  (void)(rise(round) && pass_down(round));  // a leaf does not wait
  os().reached("exchange.arrived");
  Wait wait(*this, patience);
  for (;;) {
    wait.forgive();
    pump();
    if (aborted() && !decided()) return failure_status();
    if (rise(round) && pass_down(round) && (aborted() || !unsent())) return {};
    const std::string warning = wait.look();
    if (aborted() && !decided()) return failure_status();
    if (!warning.empty()) {  // the log callback may call libzero
      lock.unlock();
      log(ZERO_LOG_WARNING, warning);
      lock.lock();
    }
    sleep(lock, wait.slice_ms());
    lock.unlock();
    heed_interrupt(patience.where());
    lock.lock();
  }
}

void TcpComm::sleep(std::unique_lock<std::mutex>& lock, int milliseconds) {
  std::vector<pollfd> polls;
  for (const Peer& peer : peers_) {
    if (peer.link->over()) continue;
    const int events = POLLIN | (peer.link->unsent() ? POLLOUT : 0);
    polls.push_back({peer.link->fd(), static_cast<short>(events), 0});
  }
  lock.unlock();
  // Wait: a slice: Wait has the deadline.
  os().poll(polls.data(), polls.size(), milliseconds);
  lock.lock();
}

// ---- Reports of waiting ranks.

/// Returns the rank for which a neighbour makes this rank wait. `now_ns` is the time of the look
/// that finds late ranks, because reports could expire between two readings of the clock.
Awaited TcpComm::awaited_of(const Peer& peer, int64_t now_ns) const {
  const bool told = peer.awaited && peer.awaited->sequence == sequence_;
  if (told && now_ns < peer.awaited->until_ns) return *peer.awaited;
  return {sequence_, peer.rank, peer.name, peer.sign_ns};
}

void TcpComm::hear_waiting(Peer& peer, const Frame& frame) {
  const std::optional<Words> words = read<Words>(frame, FrameKind::waiting);
  if (!words) return;
  const int64_t quiet_ms = std::clamp<int64_t>(words->quiet_ms, 0, now_ms());
  const std::optional<Awaited> before =
      std::exchange(peer.awaited, Awaited{frame.sequence, words->rank, text_in(words->name),
                                          peer.sign_ns - quiet_ms * kMillisecond,
                                          peer.sign_ns + words->good_for_ms * kMillisecond});
  const auto moved_ns = [&] { return peer.awaited->quiet_since_ns - before->quiet_since_ns; };
  // An unchanged report is not news. Otherwise all waiting ranks would wake each other for it.
  news_ = news_ || !before || before->sequence != frame.sequence || before->rank != words->rank ||
          std::abs(moved_ns()) > kOnTheWayMs * kMillisecond;
}

/// If no further report arrives within two intervals, the receiver considers the peer itself late.
void TcpComm::send_waiting(Peer& peer, const Awaited& awaited, int64_t interval_ns) {
  const auto good_for_ms = static_cast<int32_t>(2 * interval_ns / kMillisecond + kOnTheWayMs);
  Words words{awaited.rank, good_for_ms, (now_ns() - awaited.quiet_since_ns) / kMillisecond, {}};
  put_text(words.name, awaited.name);
  peer.link->send(FrameKind::waiting, awaited.sequence, as_payload(words));
}

int64_t TcpComm::interval_ns() const {
  return std::clamp<int64_t>(options().timeout_ms / 8, 1, 1'000) * kMillisecond;
}

/// Returns true if a report that extends deadlines is due again.
bool TcpComm::is_due(int64_t& told_ns) const {
  const int64_t now = now_ns();
  if (now - told_ns < interval_ns()) return false;
  told_ns = now;
  return true;
}

void TcpComm::tell_waiting(int32_t rank, std::string_view name, int64_t quiet_since_ns) {
  const std::lock_guard lock(mutex_);
  if (!is_due(told_waiting_ns_)) return;
  const uint64_t sequence = answered_ == sequence_ ? sequence_ + 1 : sequence_;
  for (Peer& peer : peers_)
    send_waiting(peer, {sequence, rank, std::string(name), quiet_since_ns}, interval_ns());
}

/// Excludes the time in which this process was stopped from the waits for all neighbours.
void TcpComm::forgive(int64_t absent_ns) {
  risen_ns_ += absent_ns;
  for (Peer& peer : peers_) {
    peer.sign_ns += absent_ns;
    if (!peer.awaited) continue;
    peer.awaited->quiet_since_ns += absent_ns;
    peer.awaited->until_ns += absent_ns;
  }
}

void TcpComm::expect_signs(const Watch& watch, int64_t absent_ns) {
  const std::lock_guard lock(mutex_);
  forgive(absent_ns);
  pump();
  for (const Peer& peer : peers_) {
    if (aborted() || !watch.is_late(watch.since_ns(peer.sign_ns))) continue;
    where_ = watch.where();
    blame(peer, ZERO_ERR_TIMEOUT, watch.late(peer.name));
  }
}

void TcpComm::note_progress() {
  const std::lock_guard lock(mutex_);
  if (!is_due(told_ns_)) return;
  for (Peer& peer : peers_) peer.link->send(FrameKind::progress, sequence_);
}

}  // namespace zero::tcp
