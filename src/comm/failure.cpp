// SPDX-License-Identifier: Apache-2.0
#include "comm/failure.h"

#include <cstring>

#include "base/text.h"

namespace zero {
namespace {

constexpr size_t kMostText = 4000;  // fits zero_last_error

struct Fixed {
  int32_t code;
  int32_t rank;
  int64_t step;
  uint32_t params_consistent;
  uint32_t phase_bytes;  // the phase follows, then the text
};

}  // namespace

Failure StepsSoFar::fail(Code code, int32_t rank, std::string phase, std::string text) const {
  return {code, rank, done.load(), consistent(), std::move(phase), std::move(text)};
}

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

std::vector<std::byte> pack(const Failure& failure) {
  const size_t phase = utf8_prefix(failure.phase, kMostText).size();
  const size_t text = utf8_prefix(failure.text, kMostText).size();
  const Fixed fixed{failure.code, failure.rank, failure.step, failure.params_consistent ? 1u : 0u,
                    static_cast<uint32_t>(phase)};
  std::vector<std::byte> bytes(sizeof fixed + phase + text);
  memcpy(bytes.data(), &fixed, sizeof fixed);
  if (phase != 0) memcpy(bytes.data() + sizeof fixed, failure.phase.data(), phase);
  if (text != 0) memcpy(bytes.data() + sizeof fixed + phase, failure.text.data(), text);
  return bytes;
}

Failure unpack(std::span<const std::byte> bytes) {
  Failure failure;
  failure.code = ZERO_ERR_COMM;
  failure.text = "a rank aborted the comm for a cause that could not be read";
  Fixed fixed;
  if (bytes.size() < sizeof fixed) return failure;
  memcpy(&fixed, bytes.data(), sizeof fixed);
  const std::string_view words(reinterpret_cast<const char*>(bytes.data()) + sizeof fixed,
                               bytes.size() - sizeof fixed);
  if (fixed.code >= 0 || fixed.phase_bytes > words.size()) return failure;
  failure.code = fixed.code;
  failure.rank = fixed.rank;
  failure.step = fixed.step;
  failure.params_consistent = fixed.params_consistent != 0;
  failure.phase = as_utf8(words.substr(0, fixed.phase_bytes));
  failure.text = as_utf8(words.substr(fixed.phase_bytes));
  return failure;
}

}  // namespace zero
