// SPDX-License-Identifier: Apache-2.0
// What a signal that ends the program removes: files that are half written.
#pragma once

#include <string>
#include <vector>

namespace zero::tool {

/// An entry of a directory, for unlinkat().
struct Doomed {
  int directory;
  std::string name;
  int flags = 0;
};

/// Lets Ctrl-C and the like remove those, in their order, and then end the program as they would
/// have. Signals that are ignored stay so. To be called once: the entries are there, or will be,
/// until the program ends.
void remove_on_signals(std::vector<Doomed> doomed);

}  // namespace zero::tool
