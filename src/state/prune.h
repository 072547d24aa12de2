// SPDX-License-Identifier: Apache-2.0
// Deletes old checkpoints from a folder.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace zero {

/// Deletes all complete checkpoints except the newest `keep_last` and, unless `keep_every` is 0,
/// those whose step is a multiple of `keep_every`. If there are any to delete, first verifies every
/// byte of the newest checkpoint. Returns the number of deleted checkpoints.
Result<size_t> prune_checkpoints(const std::string& folder, int64_t keep_last, int64_t keep_every);

}  // namespace zero
