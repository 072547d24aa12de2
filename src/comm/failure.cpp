// SPDX-License-Identifier: Apache-2.0
#include "comm/failure.h"

#include <cstring>

#include "base/text.h"
#include "comm/comm.h"
#include "comm/link.h"

namespace zero {
Failure StepsSoFar::fail(Code code, int32_t rank, std::string phase, std::string text) const {
  return {code, rank, done.load(), consistent(), std::move(phase), std::move(text)};
}

Publishing::Publishing(Comm& comm) : comm_(comm) { comm_.steps.publishing++; }

Publishing::~Publishing() {
  if (done_ || !comm_.aborted()) comm_.steps.publishing--;
}

std::string interruption_of(int32_t rank) { return text("rank ", rank, " was interrupted"); }

void FirstCause::set(const Failure& cause) {
  const std::lock_guard lock(mutex_);
  if (is_set()) return;
  cause_ = cause;
  set_.store(true, std::memory_order_release);
}

Failure FirstCause::get() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

Cause pack(const Failure& failure) {
  Cause cause{
      failure.code, failure.rank, failure.step, failure.params_consistent ? 1u : 0u, 0, {}, {}};
  put_text(cause.phase, failure.phase);
  put_text(cause.text, failure.text);
  return cause;
}

Failure unpack(std::span<const std::byte> bytes) {
  Cause cause{};
  if (bytes.size() == sizeof cause) memcpy(&cause, bytes.data(), sizeof cause);
  if (cause.code >= 0)
    return {ZERO_ERR_COMM, -1, 0,
            true,          {}, "a rank aborted the comm for a reason that could not be read"};
  return {cause.code,           cause.rank,         cause.step, cause.params_consistent != 0,
          text_in(cause.phase), text_in(cause.text)};
}

}  // namespace zero
