// SPDX-License-Identifier: Apache-2.0
// Exceptions that the program's C++ runtime throws and this library's catches: the shared library
// has a runtime of its own linked in.
#pragma once

#include <array>

namespace zero::api {

/// Made before a call that may throw, outside of the `try`.
class ForeignExceptions {
 public:
  ForeignExceptions();
  ForeignExceptions(const ForeignExceptions&) = delete;
  ForeignExceptions& operator=(const ForeignExceptions&) = delete;

  /// To be called by whoever caught one.
  void caught() const;

 private:
  /// What a runtime counts for each thread, as the C++ ABI lays it out.
  struct Counts {
    void* caught;
    unsigned int uncaught;
  };
  struct Noted {
    Counts* counts;
    unsigned int uncaught;
  };
  std::array<Noted, 2> runtimes_;  // this library's and the program's; they may be one
};

}  // namespace zero::api
