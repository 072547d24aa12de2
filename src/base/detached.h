// SPDX-License-Identifier: Apache-2.0
// Threads that nobody waits for, inside calls of others that may never return.
#pragma once

#include <functional>

#include "base/status.h"

namespace zero {

/// Run `body` on a thread of its own, which may be left behind: it owns all that it uses, and
/// throws nothing.
Status start_detached(std::function<void()> body);

}  // namespace zero
