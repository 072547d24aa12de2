// SPDX-License-Identifier: Apache-2.0
// Deletes old checkpoints of a folder.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace zero {

/// Deletes the complete checkpoints but the newest `keep_last`, and those whose step is a multiple
/// of `keep_every`, unless that is 0. First compares every byte of the newest with its checksum, if
/// there is one to delete. Returns how many it has deleted.
Result<size_t> prune_checkpoints(const std::string& folder, int64_t keep_last, int64_t keep_every);

}  // namespace zero
