// SPDX-License-Identifier: Apache-2.0
// Which checkpoint a path means: itself, or the newest sound one in it; and on which rank.
#pragma once

#include <string>

#include "comm/comm.h"
#include "state/manifest.h"

namespace zero {

/// Other saves may replace a checkpoint as often while it is looked for, and while it is loaded.
inline constexpr int kMostReplacements = 8;

struct FoundCheckpoint {
  std::string path;
  std::string bytes;  // of the manifest's file
  Manifest manifest;
};

/// ZERO_ERR_CKPT_INVALID if there is none. Among the entries of a folder a search passes over, with
/// a word in the log, what is no checkpoint; what the system refuses, and a format that this
/// library does not read, fail it, as they may be the newest. `progress` is called for every
/// manifest read.
Result<FoundCheckpoint> find_checkpoint(const std::string& path, const Progress& progress);

/// True if another save's checkpoint, or none, stands now where `found` was.
bool is_replaced(const FoundCheckpoint& found);

/// A relative path means what a rank's working directory makes of it.
///
/// `status`, how a call with `path` ended on all ranks. A failure of a relative path names the
/// working directories if ranks have different ones. Collective.
Status with_working_directories(Call& call, std::string_view path, Status status);

}  // namespace zero
