// SPDX-License-Identifier: Apache-2.0
// What the library warns of while a command runs.
#pragma once

#include <string>
#include <vector>

namespace zero::tool {

/// From now on each warning is a line on the error stream.
void print_warnings();

/// Keeps warnings until it ends. One at a time, and while no thread runs.
class HeldWarnings {
 public:
  HeldWarnings();
  ~HeldWarnings();
  HeldWarnings(const HeldWarnings&) = delete;
  HeldWarnings& operator=(const HeldWarnings&) = delete;

  size_t count() const { return lines_.size(); }
  /// Prints the first few, and how many more there are.
  void print_some() const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace zero::tool
