// SPDX-License-Identifier: Apache-2.0
// Monitors the other ranks: their positions, deaths and departures, and in a long wait which ranks
// are missing, since when, and whether they are late.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/link.h"
#include "comm/local/control.h"
#include "comm/process.h"

namespace zero::local {
namespace {

constexpr int64_t kShortestMs = 5, kLongestMs = 50;  // slices of a sleep

}  // namespace

void Control::say_where(const char* operation, const char* phase) {
  char words[sizeof Slot::where] = {};
  size_t length = 0;
  for (const std::string_view part : {operation, ": ", phase})
    length += part.copy(words + length, sizeof words - 1 - length);
  for (size_t i = 0; i < std::size(slot(rank_).where); ++i) {
    uint64_t word;
    std::memcpy(&word, words + i * sizeof word, sizeof word);
    slot(rank_).where[i].store(word, std::memory_order_relaxed);
  }
}

std::string Control::where_is(int32_t rank) const {
  char words[sizeof Slot::where + 1] = {};
  for (size_t i = 0; i < std::size(slot(rank).where); ++i) {
    const uint64_t word = slot(rank).where[i].load(std::memory_order_relaxed);
    std::memcpy(words + i * sizeof word, &word, sizeof word);
  }
  for (char* c = words; *c != 0; ++c)
    if (*c < ' ' || *c > '~') *c = '?';
  return words;
}

std::string Control::name_of(int32_t rank) const {
  return text("rank ", called(rank), " (process ", slot(rank).pid.load(std::memory_order_relaxed),
              ")");
}

std::string Control::death_of(int32_t rank) const {
  return text(name_of(rank), " ", peers_[static_cast<size_t>(rank)]->how_it_left());
}

/// Returns a rank whose process died while the rank had not left, or -1.
int32_t Control::find_dead(bool thoroughly) const {
  return find_dead(thoroughly, 0, others_.size());
}

/// Checks `count` of the other processes, starting at index `first` and wrapping around.
int32_t Control::find_dead(bool thoroughly, size_t first, size_t count) const {
  for (size_t i = 0; i < std::min(count, others_.size()); ++i) {
    const Peer* const other = others_[(first + i) % others_.size()];
    if (thoroughly) other->ask();
    if (!other->dead()) continue;
    for (int32_t r = 0; r < world_; ++r)
      if (peers_[static_cast<size_t>(r)].get() == other &&
          slot(r).state.load(std::memory_order_acquire) != kLeft)
        return r;
  }
  return -1;
}

/// Returns a rank that has freed its comm without joining exchange k, or -1.
int32_t Control::find_left(uint64_t k) const {
  if (header().left.load(std::memory_order_acquire) == 0) return -1;
  for (int32_t r = 0; r < world_; ++r)
    if (slot(r).state.load(std::memory_order_acquire) == kLeft &&
        slot(r).arrived.load(std::memory_order_acquire) < k)
      return r;
  return -1;
}

bool Control::any_withdrew(std::span<const int32_t> ranks) const {
  return std::any_of(ranks.begin(), ranks.end(), [&](int32_t r) {
    return slot(r).withdrew.load(std::memory_order_acquire) == sequence_;
  });
}

Status Control::check(const Patience& where) {
  if (aborted()) return failure_status();
  const int32_t dead = find_dead(true);
  if (dead < 0) return {};
  abort(make_failure(ZERO_ERR_PEER_DEAD, dead, where, death_of(dead)));
  return failure_status();
}

// ---- One long wait in an exchange.

class Control::Wait {
 public:
  Wait(const Control& control, uint64_t k, const Patience& patience, For what);

  /// Returns a reason to give up: a death, a rank that left, or the deadline.
  std::optional<Failure> find_cause();

  std::span<const Missing> missing() const { return missing_; }
  /// Returns how long to sleep now. Many sleepers share the work of checking processes.
  int64_t slice_ns() const {
    constexpr uint32_t kOften = 4;
    const uint32_t sleepers = control_.bell_of(k_, what_).sleepers.load(std::memory_order_relaxed);
    return watch_.slice_ns(
        missing_, std::clamp<int64_t>(kShortestMs * sleepers / kOften, kShortestMs, kLongestMs));
  }

 private:
  struct Seen {
    uint64_t progress;
    int64_t since_ns;  // when this value was first seen
  };

  void find_missing();
  std::string describe(std::span<const Missing> missing) const;

  const Control& control_;
  const uint64_t k_;
  const For what_;
  const Patience& patience_;
  Watch watch_;
  unsigned looks_ = 0;
  size_t next_;             // index of the next process to check
  int64_t seen_ns_ = 0;     // when seen_ was updated
  std::vector<Seen> seen_;  // by rank; empty until the wait has become long
  std::vector<Missing> missing_;
};

Control::Wait::Wait(const Control& control, uint64_t k, const Patience& patience, For what)
    : control_(control),
      k_(k),
      what_(what),
      patience_(patience),
      watch_(patience),
      next_(static_cast<size_t>(control.rank_)) {}

std::optional<Failure> Control::Wait::find_cause() {
  constexpr size_t kAtOnce = 64;  // of many processes, which other ranks also check
  const int64_t absent_ns = watch_.look();
  for (Seen& one : seen_) one.since_ns += absent_ns;
  for (Missing& one : missing_) one.since_ns += absent_ns;
  // Each pidfd costs a system call, so they are checked rarely.
  const bool thoroughly = looks_ % 8 == 7;
  const int32_t dead = control_.find_dead(thoroughly, next_, kAtOnce);
  next_ += kAtOnce;
  if (dead >= 0)
    return control_.make_failure(ZERO_ERR_PEER_DEAD, dead, patience_, control_.death_of(dead));
  if (const int32_t left = control_.find_left(k_); left >= 0)
    return control_.make_failure(ZERO_ERR_DESYNC, left, patience_,
                                 text("rank ", control_.called(left), " has freed its comm"));
  if (looks_++ > 0) find_missing();
  std::vector<Missing> late = watch_.late_of(missing_);
  if (!late.empty()) {  // the rank may have arrived since
    seen_ns_ = 0;
    find_missing();
    late = watch_.late_of(missing_);
  }
  if (!late.empty()) {
    const std::string last = control_.where_is(late[0].rank);
    return control_.make_failure(
        ZERO_ERR_TIMEOUT, late[0].rank, patience_,
        text(watch_.late(describe(late)), last.empty() ? "" : "; last seen in ", last));
  }
  if (!missing_.empty() && watch_.warns())
    log(ZERO_LOG_WARNING, watch_.warning(control_.called(control_.rank_), describe(missing_)));
  return std::nullopt;
}

void Control::Wait::find_missing() {
  const int64_t now = watch_.now_ns();
  const int64_t interval_ms = std::clamp<int64_t>(patience_.limit_ms / 16, kShortestMs, 250);
  if (seen_ns_ != 0 && now - seen_ns_ < interval_ms * 1'000'000) return;
  seen_ns_ = now;
  const auto progress_of = [&](int32_t r) {
    return control_.slot(r).progress.load(std::memory_order_relaxed);
  };
  for (int32_t r = static_cast<int32_t>(seen_.size()); r < control_.world_; ++r)
    seen_.push_back({progress_of(r), now});
  missing_.clear();
  const bool for_leader = what_ == For::leader;
  for (int32_t r = 0; r < (for_leader ? 1 : control_.world_); ++r) {
    if (!for_leader && control_.slot(r).arrived.load(std::memory_order_acquire) >= k_) continue;
    Seen& one = seen_[static_cast<size_t>(r)];
    if (const uint64_t progress = progress_of(r); progress != one.progress) one = {progress, now};
    missing_.push_back({r, watch_.since_ns(one.since_ns)});
  }
}

/// Returns a text like "rank 2 (process 1234, stopped), rank 3 (process 1235, running)".
std::string Control::Wait::describe(std::span<const Missing> missing) const {
  std::vector<std::string> names;
  for (const Missing& one : missing) {
    const pid_t pid = control_.slot(one.rank).pid.load(std::memory_order_relaxed);
    names.push_back(
        text("rank ", control_.called(one.rank), " (process ", pid, ", ", process_state(pid), ")"));
  }
  return list_some(names);
}

Status Control::await_asleep(uint64_t k, const Patience& patience, For what) {
  Wait wait(*this, k, patience, what);
  for (;;) {
    if (std::optional<Status> end = look(k, what)) return *std::move(end);
    if (const std::optional<Failure> cause = wait.find_cause()) {
      give_up(k, *cause);
      continue;
    }
    doze(k, wait.slice_ns(), what);
    if (interrupted())
      give_up(k, make_failure(ZERO_ERR_ABORTED, rank_, patience, interruption_of(called(rank_))));
    if (part_.look) part_.look(wait.missing());
  }
}

}  // namespace zero::local
