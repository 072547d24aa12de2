// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.h"

#include <algorithm>
#include <utility>

#include "base/callers_time.h"
#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr int64_t kAbsenceNs = 1'000'000'000;
constexpr int64_t kMostLimits = 2;  // of absence in one wait, in limits
constexpr int64_t kLongMs = 10'000;
constexpr size_t kNamed = 8;  // ranks in one message

}  // namespace

std::string Patience::where() const { return text(operation, ": ", phase); }

std::string list_some(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kNamed); i++)
    list += text(i == 0 ? "" : ", ", names[i]);
  if (names.size() > kNamed) list += text(" and ", names.size() - kNamed, " more");
  return list;
}

Watch::Watch(const Patience& patience)
    : patience_(patience),
      start_ns_(zero::now_ns()),
      now_ns_(start_ns_),
      callers_ns_(CallersTime::spent_ns()) {}

int64_t Watch::look() {
  const int64_t before_ns = std::exchange(now_ns_, zero::now_ns());
  const int64_t called_before_ns = std::exchange(callers_ns_, CallersTime::spent_ns());
  const int64_t stopped_ns = now_ns_ - before_ns - (callers_ns_ - called_before_ns);
  if (stopped_ns < kAbsenceNs) return 0;
  const int64_t most_ns = kMostLimits * patience_.limit_ms * 1'000'000;
  const int64_t absent_ns =
      absent_ns_ == 0 ? stopped_ns : std::clamp(most_ns - absent_ns_, int64_t{0}, stopped_ns);
  absent_ns_ += absent_ns;
  start_ns_ += absent_ns;
  return absent_ns;
}

std::vector<Missing> Watch::late_of(std::span<const Missing> missing) const {
  std::vector<Missing> late;
  for (const Missing& one : missing)
    if (is_late(one.since_ns)) late.push_back(one);
  return late;
}

int64_t Watch::slice_ms() const {
  constexpr int64_t kShortestMs = 20, kLongestMs = 100;
  constexpr int64_t kLooks = 50;  // per time waited so far
  return std::clamp((now_ns_ - start_ns_) / 1'000'000 / kLooks, kShortestMs, kLongestMs);
}

int64_t Watch::slice_ns(std::span<const Missing> missing, int64_t most_ms) const {
  int64_t oldest_ns = now_ns_;
  for (const Missing& one : missing) oldest_ns = std::min(oldest_ns, one.since_ns);
  const int64_t left_ns = patience_.limit_ms * 1'000'000 - (now_ns_ - oldest_ns);
  return std::clamp(left_ns, int64_t{1}, most_ms * 1'000'000);
}

bool Watch::warns() {
  if (warned_ || now_ns_ - start_ns_ < kLongMs * 1'000'000) return false;
  return warned_ = true;
}

std::string Watch::late(std::string_view names) const {
  return text(names,
              patience_.extended_by_progress ? " made no progress for " : " did not arrive within ",
              patience_.limit_ms, " ms");
}

std::string Watch::warning(int32_t rank, std::string_view names) const {
  return text(patience_.where(), ": rank ", rank, " has been waiting for ", kLongMs / 1000,
              " s for ", names);
}

}  // namespace zero
