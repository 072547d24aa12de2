// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/tcp.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/text.h"

namespace zero::tcp {
namespace {

constexpr int32_t kNobody = -1;
constexpr int kPartingMs = 100;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSliceMs = 20;
constexpr int64_t kGraceMs = 1'000;  // for rank 0 to answer a rank whose deadline has passed

}  // namespace

TcpComm::~TcpComm() {
  for (Peer& peer : peers_)
    (void)succeeds([&] { return peer.link->send(FrameKind::goodbye, sequence_), true; });
  const Deadline deadline(kPartingMs);
  const auto unsent = [&] {
    return std::any_of(peers_.begin(), peers_.end(), [](Peer& peer) {
      peer.link->flush();
      return peer.link->unsent();
    });
  };
  // Wait: kPartingMs.
  while (unsent() && !deadline.passed()) os().poll(nullptr, 0, 1);
}

// ---- One wait in an exchange: who is missing, since when, and whether that has been long enough.

class TcpComm::Wait {
 public:
  Wait(TcpComm& comm, const Patience& patience)
      : comm_(comm), patience_(patience), watch_(patience) {}

  /// Breaks the comm if there is a reason to: a rank that left, the deadline. At the deadline a
  /// rank other than 0 first asks rank 0 to, and does it alone if that does not answer. Returns a
  /// warning once, if the wait has become long.
  std::string look();

  int slice_ms() const;

 private:
  std::vector<Missing> find_missing() const;
  std::string names_of(std::span<const Missing> missing) const;
  void look_for_left();
  void tell_waiting();
  void be_late();

  TcpComm& comm_;
  const Patience& patience_;
  Watch watch_;
  std::vector<Missing> missing_;
  int64_t told_ns_ = watch_.now_ns();
  int64_t asked_ns_ = 0;  // when this rank asked rank 0 to give up
};

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
  if (comm_.rank() == 0) tell_waiting();
  be_late();
  if (missing_.empty() || !watch_.warns()) return {};
  return watch_.warning(comm_.rank(), names_of(missing_));
}

/// Tells the ranks that have come who is missing, so that the one whose deadline comes first can
/// name that rank.
void TcpComm::Wait::tell_waiting() {
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

/// True if rank 0 has ended the exchange. Then a cause that came behind that is the next one's.
bool TcpComm::decided() const {
  return rank() == 0 ? answered_ == sequence_ : records_.has_value();
}

bool TcpComm::advance(const Round& round) {
  if (rank() != 0) return take_records(round.out);
  if (answered_ != sequence_ && !collect(round)) return false;
  return aborted() || std::none_of(peers_.begin(), peers_.end(),
                                   [](const Peer& peer) { return peer.link->unsent(); });
}

/// Sends to everybody, on rank 0, what all have sent, once that is there.
bool TcpComm::collect(const Round& round) {
  const auto& [mine, out, source, combine] = round;
  for (const Peer& peer : peers_)
    if (!peer.record) return false;
  const bool odd = std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.record->sequence != sequence_ ||
           (source == Round::kOfAll && peer.record->payload.size() != mine.size());
  });
  std::vector<std::byte> answer(mine.begin(), mine.end());
  for (const Peer& peer : peers_) {
    const std::vector<std::byte>& theirs = peer.record->payload;
    if (odd || combine == nullptr)
      answer.insert(answer.end(), theirs.begin(), theirs.end());
    else
      (*combine)(answer.data(), theirs.data(), theirs.size());
  }
  // In a broadcast only the source has sent anything, and all get what rank 0 expects.
  const size_t expected = source == 0 ? mine.size() : out.size();
  if (odd || answer.size() != expected) {
    break_for(ZERO_ERR_COMM, kNobody, "the ranks sent records that do not fit together");
    return false;
  }
  if (!out.empty()) memcpy(out.data(), answer.data(), answer.size());
  answered_ = sequence_;
  for (Peer& peer : peers_) {
    peer.record.reset();
    const bool sent_it = source == peer.rank;
    peer.link->send(FrameKind::records, sequence_,
                    sent_it ? std::span<std::byte>() : std::span(answer));
  }
  os().reached("exchange.decided");
  return true;
}

bool TcpComm::take_records(std::span<std::byte> out) {
  if (!records_) return false;
  if (records_->sequence != sequence_ || records_->payload.size() != out.size()) {
    records_.reset();
    break_for(ZERO_ERR_COMM, 0, "rank 0 sent records that do not fit");
    return false;
  }
  if (!out.empty()) memcpy(out.data(), records_->payload.data(), out.size());
  records_.reset();
  return true;
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

Status TcpComm::run(const Round& round, const Patience& patience) {
  std::unique_lock lock(mutex_);
  if (aborted()) return failure_status();
  where_ = patience.where();
  ++sequence_;
  awaited_.reset();
  records_.reset();
  if (rank() != 0) peers_[0].link->send(FrameKind::record, sequence_, round.mine);
  os().reached("exchange.arrived");
  Wait wait(*this, patience);
  for (;;) {
    pump();
    if (aborted() && !decided()) return failure_status();
    if (advance(round)) return {};
    const std::string warning = wait.look();
    if (aborted() && !decided()) return failure_status();
    if (!warning.empty()) {  // the callback may call anything
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

// ---- What comes.

void TcpComm::pump() {
  for (Peer& peer : peers_) {
    peer.link->flush();
    while (std::optional<Frame> frame = peer.link->take()) handle(peer, std::move(*frame));
    if (peer.link->over() && !peer.left)
      break_for(ZERO_ERR_PEER_DEAD, peer.rank, text(peer.name, " died: its connection has ended"));
  }
}

void TcpComm::handle(Peer& peer, Frame frame) {
  switch (frame.kind) {
    case FrameKind::record:
      peer.record = std::move(frame);
      break;
    case FrameKind::records:
      records_ = std::move(frame);
      break;
    case FrameKind::waiting:
      handle_waiting(frame);
      break;
    case FrameKind::progress:
      peer.sign_ns = now_ns();
      break;
    case FrameKind::cause:
      // The deadline passed while the answer was on its way.
      if (rank() == 0 && frame.sequence != 0 && frame.sequence <= answered_) break;
      set_cause(unpack(frame.payload), peer.rank);
      break;
    case FrameKind::goodbye:
      peer.left = true;
      break;
    case FrameKind::refusal:
      break_for(ZERO_ERR_RENDEZVOUS, kNobody, text_of(frame));
      break;
    default:
      break_for(ZERO_ERR_COMM, peer.rank, text(peer.name, " introduced itself twice"));
      break;
  }
}

void TcpComm::handle_waiting(const Frame& frame) {
  const std::optional<Waiting> words = read<Waiting>(frame, FrameKind::waiting);
  if (rank() == 0 || frame.sequence != sequence_ || !words) return;
  const int64_t quiet_ms = std::clamp<int64_t>(words->quiet_ms, 0, now_ms());
  awaited_ = Awaited{words->rank, text_in(words->name), now_ns() - quiet_ms * kMillisecond};
}

void TcpComm::note_progress() {
  const int64_t interval_ns = std::clamp<int64_t>(options().timeout_ms / 8, 1, 1'000) * 1'000'000;
  const std::lock_guard lock(mutex_);
  const int64_t now = now_ns();
  if (now - told_ns_ < interval_ns) return;
  told_ns_ = now;
  for (Peer& peer : peers_) peer.link->send(FrameKind::progress, sequence_);
}

Status TcpComm::check() {
  {
    const std::lock_guard lock(mutex_);
    pump();
  }
  return Comm::check();
}

// ---- What breaks it.

void TcpComm::abort(const Failure& cause) {
  const std::lock_guard lock(mutex_);
  set_cause(cause, kNobody);
}

/// Sets the cause, unless there is one already, and tells all ranks.
void TcpComm::set_cause(const Failure& cause, int32_t told_by) {
  if (aborted()) return;
  cause_.set(cause);
  const Cause packed = pack(cause);
  // Rank 0 tells also the rank that it came from, because a rank that asks rank 0 to give up waits
  // for the answer.
  for (Peer& peer : peers_)
    if (rank() == 0 || told_by != 0) peer.link->send(FrameKind::cause, 0, as_payload(packed));
}

void TcpComm::break_for(Code code, int32_t rank, std::string_view sentence) {
  set_cause(make_failure(code, rank, sentence), kNobody);
}

Failure TcpComm::make_failure(Code code, int32_t rank, std::string_view sentence) const {
  return steps.fail(code, rank, where_, text(where_, where_.empty() ? "" : ": ", sentence));
}

Failure TcpComm::failure() const {
  Failure failure = cause_.get();
  failure.params_consistent = failure.params_consistent && steps.consistent();
  return failure;
}

Result<std::shared_ptr<Comm>> TcpComm::make_child(Call&, std::span<const int32_t>, int32_t,
                                                  int32_t) {
  return Status(ZERO_ERR_UNSUPPORTED, "ranks that are only connected cannot be split");
}

}  // namespace zero::tcp
