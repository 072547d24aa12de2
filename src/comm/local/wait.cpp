// SPDX-License-Identifier: Apache-2.0
// One long wait in an exchange: who is missing, since when, and whether that has been long enough.
#include <optional>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/link.h"
#include "comm/local/control.h"
#include "comm/process.h"

namespace zero::local {

class Control::Wait {
 public:
  Wait(const Control& control, uint64_t k, const Patience& patience);

  /// Returns a reason to give up: a death, a rank that left, the deadline.
  std::optional<Failure> find_cause(bool thoroughly);

  /// Returns how long to sleep now.
  int64_t slice_ns() const { return watch_.slice_ns(missing_, kSliceMs); }

 private:
  struct Seen {
    uint64_t progress;
    int64_t since_ns;  // when that was new
  };

  std::vector<Missing> find_missing();
  std::string describe(std::span<const Missing> missing) const;

  const Control& control_;
  const uint64_t k_;
  const Patience& patience_;
  Watch watch_;
  std::vector<Seen> seen_;  // by rank
  std::vector<Missing> missing_;
};

Control::Wait::Wait(const Control& control, uint64_t k, const Patience& patience)
    : control_(control), k_(k), patience_(patience), watch_(patience) {
  for (int32_t r = 0; r < control.world_; ++r)
    seen_.push_back({control.slot(r).progress.load(std::memory_order_relaxed), watch_.now_ns()});
}

std::optional<Failure> Control::Wait::find_cause(bool thoroughly) {
  const int64_t absent_ns = watch_.look();
  for (Seen& one : seen_) one.since_ns += absent_ns;
  if (const int32_t dead = control_.find_dead(thoroughly); dead >= 0)
    return control_.make_failure(ZERO_ERR_PEER_DEAD, dead, patience_, control_.death_of(dead));
  if (const int32_t left = control_.find_left(k_); left >= 0)
    return control_.make_failure(ZERO_ERR_DESYNC, left, patience_,
                                 text("rank ", left, " has freed its comm"));
  missing_ = find_missing();
  if (const std::vector<Missing> late = watch_.late_of(missing_); !late.empty()) {
    const std::string last = control_.where_is(late[0].rank);
    return control_.make_failure(
        ZERO_ERR_TIMEOUT, late[0].rank, patience_,
        text(watch_.late(describe(late)), last.empty() ? "" : "; last seen in ", last));
  }
  if (!missing_.empty() && watch_.warns())
    log(ZERO_LOG_WARNING, watch_.warning(control_.rank_, describe(missing_)));
  return std::nullopt;
}

std::vector<Missing> Control::Wait::find_missing() {
  std::vector<Missing> missing;
  for (int32_t r = 0; r < control_.world_; ++r) {
    if (control_.slot(r).arrived.load(std::memory_order_acquire) >= k_) continue;
    Seen& one = seen_[static_cast<size_t>(r)];
    const uint64_t progress = control_.slot(r).progress.load(std::memory_order_relaxed);
    if (progress != one.progress) one = {progress, watch_.now_ns()};
    missing.push_back({r, watch_.since_ns(one.since_ns)});
  }
  return missing;
}

/// Returns "rank 2 (process 1234, stopped), rank 3 (process 1235, running)".
std::string Control::Wait::describe(std::span<const Missing> missing) const {
  std::vector<std::string> names;
  for (const Missing& one : missing) {
    const pid_t pid = control_.slot(one.rank).pid.load(std::memory_order_relaxed);
    names.push_back(text("rank ", one.rank, " (process ", pid, ", ", process_state(pid), ")"));
  }
  return list_some(names);
}

Status Control::await_asleep(uint64_t k, const Patience& patience) {
  Wait wait(*this, k, patience);
  for (unsigned slice = 0;; ++slice) {
    if (std::optional<Status> end = look(k)) return *std::move(end);
    // The pidfds cost a system call each, so they are asked now and then.
    if (const std::optional<Failure> cause = wait.find_cause(slice % 8 == 7)) {
      give_up(k, *cause);
      continue;
    }
    doze(k, wait.slice_ns());
    if (interrupted())
      give_up(k, make_failure(ZERO_ERR_ABORTED, rank_, patience, interruption_of(rank_)));
  }
}

}  // namespace zero::local
