// SPDX-License-Identifier: Apache-2.0
#include "comm/local/wait.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "comm/local/process.h"
#include "comm/local/socket.h"

namespace zero::local {

Control::Wait::Wait(const Control& control, uint64_t k, const Patience& patience)
    : control_(control), k_(k), patience_(patience), watch_(patience), oldest_ns_(watch_.now_ns()) {
  for (int32_t r = 0; r < control.world_; ++r)
    seen_.push_back({control.slot(r).progress.load(std::memory_order_relaxed), oldest_ns_});
}

std::optional<Failure> Control::Wait::find_cause(bool thoroughly) {
  const int64_t absent_ns = watch_.look();
  for (Seen& one : seen_) one.since_ns += absent_ns;
  if (const int32_t dead = control_.find_dead(thoroughly); dead >= 0)
    return control_.make_failure(ZERO_ERR_PEER_DEAD, dead, patience_, control_.death_of(dead));
  if (const int32_t left = control_.find_left(k_); left >= 0)
    return control_.make_failure(ZERO_ERR_DESYNC, left, patience_,
                                 text("rank ", left, " has freed its comm"));
  look_around();
  if (watch_.is_late(oldest_ns_)) return late();
  if (watch_.warns()) warn();
  return std::nullopt;
}

void Control::Wait::look_around() {
  oldest_ns_ = watch_.start_ns();
  if (!patience_.extended_by_progress) return;
  oldest_ns_ = watch_.now_ns();
  for (const int32_t r : missing()) {
    Seen& one = seen_[static_cast<size_t>(r)];
    const uint64_t progress = control_.slot(r).progress.load(std::memory_order_relaxed);
    if (progress != one.progress) one = {progress, watch_.now_ns()};
    oldest_ns_ = std::min(oldest_ns_, one.since_ns);
  }
}

int64_t Control::Wait::slice_ns() const {
  const int64_t left_ns = watch_.limit_ns() - (watch_.now_ns() - oldest_ns_);
  return std::clamp(left_ns, int64_t{1}, int64_t{kSliceMs} * 1'000'000);
}

std::vector<int32_t> Control::Wait::missing() const {
  std::vector<int32_t> ranks;
  for (int32_t r = 0; r < control_.world_; ++r)
    if (control_.slot(r).arrived.load(std::memory_order_acquire) < k_) ranks.push_back(r);
  return ranks;
}

/// "rank 2 (process 1234, stopped), rank 3 (process 1235, running)"
std::string Control::Wait::describe(const std::vector<int32_t>& ranks) const {
  std::vector<std::string> names;
  for (const int32_t r : ranks) {
    const pid_t pid = control_.slot(r).pid.load(std::memory_order_relaxed);
    names.push_back(text("rank ", r, " (process ", pid, ", ", process_state(pid), ")"));
  }
  return list_some(names);
}

Failure Control::Wait::late() const {
  std::vector<int32_t> ranks = missing();
  if (patience_.extended_by_progress)
    std::erase_if(
        ranks, [&](int32_t r) { return !watch_.is_late(seen_[static_cast<size_t>(r)].since_ns); });
  if (ranks.empty())  // they came this moment: the decision word has the last say
    return control_.make_failure(ZERO_ERR_TIMEOUT, -1, patience_, "the deadline passed");
  const std::string last = control_.where_is(ranks[0]);
  return control_.make_failure(
      ZERO_ERR_TIMEOUT, ranks[0], patience_,
      text(watch_.late(describe(ranks)), last.empty() ? "" : "; last seen in ", last));
}

void Control::Wait::warn() const {
  const std::vector<int32_t> ranks = missing();
  if (!ranks.empty()) log(ZERO_LOG_WARNING, watch_.warning(control_.rank_, describe(ranks)));
}

}  // namespace zero::local
