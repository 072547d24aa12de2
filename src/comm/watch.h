// SPDX-License-Identifier: Apache-2.0
// One wait for other ranks: where it is, how long it may take, how long it has taken.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace zero {

struct Patience {
  const char* operation;
  const char* phase;
  int64_t limit_ms;
  bool extended_by_progress;  // the limit counts since the last sign of life, else from the start
  Code code = ZERO_OK;        // instead of what broke it: ZERO_ERR_RENDEZVOUS while a comm forms

  std::string where() const;  // "zero_step: vote"
};

/// "rank 1, rank 2 and 5 more"
std::string list_some(const std::vector<std::string>& names);

/// Who has not come yet, and since when it has been waited for.
struct Missing {
  int32_t rank;
  int64_t since_ns;
};

class Watch {
 public:
  explicit Watch(const Patience& patience);

  /// Look at the clock. For how long this process itself was stopped, as a job is that is put to
  /// sleep as a whole: that is held against nobody, and others' signs of life are as much younger.
  int64_t look();
  int64_t now_ns() const { return now_ns_; }
  /// Since when who last showed a sign of life then has been waited for.
  int64_t since_ns(int64_t sign_ns) const {
    return patience_.extended_by_progress ? std::max(start_ns_, sign_ns) : start_ns_;
  }
  /// Those of `missing` that are late.
  std::vector<Missing> late_of(std::span<const Missing> missing) const;
  /// How long to sleep until one of them is, at most `most_ms`.
  int64_t slice_ns(std::span<const Missing> missing, int64_t most_ms) const;
  /// True once, when a wait has become long.
  bool warns();

  /// What `names` have not done, and what this rank warns of.
  std::string late(std::string_view names) const;
  std::string warning(int32_t rank, std::string_view names) const;

 private:
  const Patience& patience_;
  int64_t start_ns_, now_ns_;
  bool warned_ = false;
};

}  // namespace zero
