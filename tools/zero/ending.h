// SPDX-License-Identifier: Apache-2.0
// Removes unfinished files when a signal ends the program.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

namespace zero::tool {

/// Blocks signals that end the program while it exists, for files that remove_on_signals() does not
/// know.
class EndingHeld {
 public:
  EndingHeld();
  ~EndingHeld();
  EndingHeld(const EndingHeld&) = delete;
  EndingHeld& operator=(const EndingHeld&) = delete;

  /// Returns true if a blocked signal is pending.
  bool waits() const;

 private:
  sigset_t held_;  // blocked by this object, not by the caller before
};

/// Makes signals such as that of Ctrl-C remove `files` and then `directory`, unless that is "",
/// before they end the program. Ignored signals stay ignored. Must be called only once. Files that
/// have been renamed stay, so paths must lead over the name that changes.
void remove_on_signals(std::vector<std::string> files, std::string directory);

}  // namespace zero::tool
