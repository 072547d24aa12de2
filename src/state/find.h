// SPDX-License-Identifier: Apache-2.0
// Which checkpoint a path means: itself, or the newest sound one in it.
#pragma once

#include <string>

#include "base/status.h"
#include "state/manifest.h"

namespace zero {

/// Other saves may replace a checkpoint as often while it is looked for, and while it is loaded.
inline constexpr int kMostReplacements = 8;

struct FoundCheckpoint {
  std::string path;
  Manifest manifest;
};

/// ZERO_ERR_CKPT_INVALID if there is none. Among the entries of a folder a search passes over, with
/// a word in the log, what is no checkpoint; what the system refuses, and a format that this
/// library does not read, fail it, as they may be the newest. `progress` is called for every
/// manifest read.
Result<FoundCheckpoint> find_checkpoint(const std::string& path, const Progress& progress);

/// True if another save's checkpoint, or none, stands now where `found` was.
bool is_replaced(const FoundCheckpoint& found);

}  // namespace zero
