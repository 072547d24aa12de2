// SPDX-License-Identifier: Apache-2.0
// Breaking a comm: the abort word, and the causes to which it refers.
#include "base/text.h"
#include "comm/link.h"
#include "comm/local/control.h"

namespace zero::local {

/// Stores this rank's cause, unless the existing one has been published. Requires cause_mutex_.
void Control::fill_cause(const Failure& failure) {
  if (!cause_published_) slot(rank_).cause = pack(failure);
}

/// Sets the abort word, because the rank that decided the abort may have died before it did so.
void Control::help_abort_word(uint32_t aborted_by) {
  uint32_t none = 0;
  header().abort.compare_exchange_strong(none, aborted_by);
}

Status Control::broken_by(uint32_t aborted_by) {
  help_abort_word(aborted_by);
  return failure_status();
}

void Control::abort(const Failure& cause) {
  const std::lock_guard lock(cause_mutex_);
  if (aborted()) return;
  fill_cause(cause);
  uint32_t none = 0;
  os().reached("abort.blamed");
  if (!header().abort.compare_exchange_strong(none, static_cast<uint32_t>(rank_) + 1)) return;
  cause_published_ = true;
  os().reached("abort.published");
  ring_all();
}

Status Control::damaged() {
  abort(steps().fail(
      ZERO_ERR_COMM, -1, "",
      "the memory that the ranks share was overwritten: a rank wrote where it must not"));
  return failure_status();
}

Failure Control::failure() const {
  const uint32_t word = header().abort.load(std::memory_order_acquire);
  if (word == 0) return {};
  if (word > static_cast<uint32_t>(world_))
    return steps().fail(
        ZERO_ERR_COMM, -1, "",
        text("the memory that the ranks share was overwritten: rank ", word - 1, " of ", world_));
  const Cause& cause = slot(static_cast<int32_t>(word) - 1).cause;
  Failure failure = unpack(as_payload(cause));
  const int32_t world = part_.ranks.empty() ? world_ : part_.world;
  if (failure.rank < 0 || failure.rank >= world) failure.rank = -1;
  failure.params_consistent = failure.params_consistent && steps().consistent();
  return failure;
}

Status Control::failure_status() const { return failure().status(); }

Failure Control::make_failure(Code code, int32_t rank, const Patience& where,
                              std::string_view sentence) const {
  const std::string at = where.operation[0] == 0 ? where_is(rank_) : where.where();
  return steps().fail(where.code != ZERO_OK ? where.code : code, called(rank), at,
                      text(at, at.empty() ? "" : ": ", sentence));
}

}  // namespace zero::local
