// SPDX-License-Identifier: Apache-2.0
// Handles the library's warnings while a command runs.
#pragma once

#include <string>
#include <vector>

namespace zero::tool {

/// Prints each warning from now on as a line on the error stream.
void print_warnings();

/// Keeps warnings during its lifetime. Only one may exist at a time, while no other thread runs.
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
