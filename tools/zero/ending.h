// SPDX-License-Identifier: Apache-2.0
// What a signal that ends the program removes: files that are half written.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

namespace zero::tool {

/// While it lives, such signals wait: for code that makes what remove_on_signals() is not told of.
class EndingHeld {
 public:
  EndingHeld();
  ~EndingHeld();
  EndingHeld(const EndingHeld&) = delete;
  EndingHeld& operator=(const EndingHeld&) = delete;

  /// True if a signal waits.
  bool waits() const;

 private:
  sigset_t held_;  // by us, not by the caller before
};

/// Lets Ctrl-C and the like remove those files and then that directory, unless it is "", and end
/// the program as they would have. Signals that are ignored stay so. To be called once. What has
/// got another name by then stays, so paths must lead over the name that changes.
void remove_on_signals(std::vector<std::string> files, std::string directory);

}  // namespace zero::tool
