// SPDX-License-Identifier: Apache-2.0
// For texts about relative paths: nothing else depends on it.
#pragma once

#include <string>

namespace zero {

/// Of this process, as the system names it; "unknown" where it does not.
std::string working_directory();

}  // namespace zero
