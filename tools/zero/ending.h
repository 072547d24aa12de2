// SPDX-License-Identifier: Apache-2.0
// What a signal that ends the program removes: files that are half written.
#pragma once

#include <string>
#include <vector>

namespace zero::tool {

/// Lets Ctrl-C and the like remove those files and then that directory, unless it is "", and end
/// the program as they would have. Signals that are ignored stay so. To be called once. What has
/// got another name by then stays, so paths must lead over the name that changes.
void remove_on_signals(std::vector<std::string> files, std::string directory);

}  // namespace zero::tool
