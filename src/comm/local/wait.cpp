// SPDX-License-Identifier: Apache-2.0
#include "comm/local/wait.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "comm/local/process.h"
#include "comm/local/socket.h"

namespace zero::local {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kWarnNs = 10'000 * kMillisecond;
constexpr int64_t kAbsenceNs = 1'000 * kMillisecond;
constexpr size_t kNamed = 8;  // ranks in one sentence

}  // namespace

Control::Wait::Wait(const Control& control, uint64_t k, const Patience& patience)
    : control_(control), k_(k), patience_(patience) {
  start_ns_ = last_ns_ = oldest_ns_ = now_ns();
  for (int32_t r = 0; r < control.world_; ++r)
    seen_.push_back({control.slot(r).progress.load(std::memory_order_relaxed), start_ns_});
}

std::optional<Failure> Control::Wait::find_cause(bool thoroughly) {
  const int64_t now = now_ns();
  excuse_own_absence(now);
  if (const int32_t dead = control_.find_dead(thoroughly); dead >= 0)
    return control_.make_failure(ZERO_ERR_PEER_DEAD, dead, patience_, control_.death_of(dead));
  if (const int32_t left = control_.find_left(k_); left >= 0)
    return control_.make_failure(ZERO_ERR_DESYNC, left, patience_,
                                 text("rank ", left, " has freed its comm"));
  look_around(now);
  if (now - oldest_ns_ >= patience_.limit_ms * kMillisecond) return late(now);
  if (!warned_ && now - start_ns_ >= kWarnNs) {
    warned_ = true;
    warn();
  }
  return std::nullopt;
}

/// When this process itself was stopped (a job put to sleep as a whole), that time is held against
/// nobody.
void Control::Wait::excuse_own_absence(int64_t now) {
  const int64_t absent = now - last_ns_;
  last_ns_ = now;
  if (absent < kAbsenceNs) return;
  start_ns_ += absent;
  oldest_ns_ += absent;
  for (Seen& one : seen_) one.since_ns += absent;
}

void Control::Wait::look_around(int64_t now) {
  oldest_ns_ = start_ns_;
  if (!patience_.extended_by_progress) return;
  oldest_ns_ = now;
  for (const int32_t r : missing()) {
    Seen& one = seen_[static_cast<size_t>(r)];
    const uint64_t progress = control_.slot(r).progress.load(std::memory_order_relaxed);
    if (progress != one.progress) one = {progress, now};
    oldest_ns_ = std::min(oldest_ns_, one.since_ns);
  }
}

int64_t Control::Wait::slice_ns() const {
  const int64_t left = patience_.limit_ms * kMillisecond - (last_ns_ - oldest_ns_);
  return std::clamp(left, int64_t{1}, kSliceMs * kMillisecond);
}

std::vector<int32_t> Control::Wait::missing() const {
  std::vector<int32_t> ranks;
  for (int32_t r = 0; r < control_.world_; ++r)
    if (control_.slot(r).arrived.load(std::memory_order_acquire) < k_) ranks.push_back(r);
  return ranks;
}

/// "rank 2 (process 1234, stopped), rank 3 (process 1235, running)"
std::string Control::Wait::describe(const std::vector<int32_t>& ranks) const {
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    const pid_t pid = control_.slot(ranks[i]).pid.load(std::memory_order_relaxed);
    names += text(i == 0 ? "" : ", ", "rank ", ranks[i], " (process ", pid, ", ",
                  process_state(pid), ")");
  }
  if (ranks.size() > kNamed) names += text(" and ", ranks.size() - kNamed, " more");
  return names;
}

Failure Control::Wait::late(int64_t now) const {
  std::vector<int32_t> ranks = missing();
  if (patience_.extended_by_progress)
    std::erase_if(ranks, [&](int32_t r) {
      return now - seen_[static_cast<size_t>(r)].since_ns < patience_.limit_ms * kMillisecond;
    });
  if (ranks.empty())  // they came this moment: the decision word has the last say
    return control_.make_failure(ZERO_ERR_TIMEOUT, -1, patience_, "the deadline passed");
  const std::string last = control_.where_is(ranks[0]);
  return control_.make_failure(
      ZERO_ERR_TIMEOUT, ranks[0], patience_,
      text(describe(ranks),
           patience_.extended_by_progress ? " made no progress for " : " did not come within ",
           patience_.limit_ms, " ms", last.empty() ? "" : "; last seen in ", last));
}

void Control::Wait::warn() const {
  const std::vector<int32_t> ranks = missing();
  if (ranks.empty()) return;
  log(ZERO_LOG_WARNING, text(patience_.operation, ": ", patience_.phase, ": rank ", control_.rank_,
                             " has been waiting for 10 s for ", describe(ranks)));
}

}  // namespace zero::local
