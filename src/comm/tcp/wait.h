// SPDX-License-Identifier: Apache-2.0
// One wait in an exchange: who is missing, since when, and whether that has been long enough.
#pragma once

#include "comm/tcp/control.h"

namespace zero::tcp {

class Control::Wait {
 public:
  Wait(Control& control, const Patience& patience);

  /// Breaks the comm where there is a reason to: a rank that left, the deadline. A rank other than
  /// 0 only asks rank 0 to, and does it alone if that does not answer. A wait that has become long
  /// answers once with a warning.
  std::string look();

  int slice_ms() const;

 private:
  struct Missing {
    int32_t rank;
    std::string name;
    int64_t since_ns;  // its last sign of life
  };

  std::vector<Missing> missing() const;
  void look_for_left();
  void tell_guests(const std::vector<Missing>& ranks);
  void be_late(const std::vector<Missing>& ranks);

  Control& control_;
  const Patience& patience_;
  Watch watch_;
  int64_t told_ns_;
  int64_t asked_ns_ = 0;  // when this rank asked rank 0 to give up
};

}  // namespace zero::tcp
