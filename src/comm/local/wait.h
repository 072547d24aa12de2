// SPDX-License-Identifier: Apache-2.0
// One long wait in an exchange: who is missing, since when, and whether that has been long enough.
#pragma once

#include <optional>
#include <vector>

#include "comm/local/control.h"

namespace zero::local {

class Control::Wait {
 public:
  Wait(const Control& control, uint64_t k, const Patience& patience);

  /// A reason to give up: a death, a rank that left, the deadline.
  std::optional<Failure> find_cause(bool thoroughly);

  /// How long to sleep now.
  int64_t slice_ns() const;

 private:
  struct Seen {
    uint64_t progress;
    int64_t since_ns;  // when that was new
  };

  void look_around();
  Failure late() const;
  void warn() const;
  std::vector<int32_t> missing() const;
  std::string describe(const std::vector<int32_t>& ranks) const;

  const Control& control_;
  const uint64_t k_;
  const Patience& patience_;
  Watch watch_;
  int64_t oldest_ns_;  // since when nothing has come from the quietest of the missing
  std::vector<Seen> seen_;
};

}  // namespace zero::local
