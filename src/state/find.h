// SPDX-License-Identifier: Apache-2.0
// Finds the checkpoint that a path means, on each rank: itself, or the newest sound one in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "comm/comm.h"
#include "state/manifest.h"

namespace zero {

/// How often other saves may replace a checkpoint while it is looked for, or while it is loaded.
inline constexpr int kMostReplacements = 8;

struct FoundCheckpoint {
  std::string path;
  std::string bytes;  // of the manifest's file
  Manifest manifest;
};

/// A complete checkpoint of a folder.
struct ListedCheckpoint {
  int64_t step;
  std::string name;  // of its directory
  int32_t world;
  uint64_t bytes;  // of all its files
  Digest save_id;
};

/// Returns the checkpoints in a folder, newest first, which a load would take. It skips and fails
/// as the search of a load does. A folder that does not exist has none.
Result<std::vector<ListedCheckpoint>> list_checkpoints(const std::string& folder);

/// Fails with ZERO_ERR_CKPT_INVALID unless a sound manifest is there.
Result<FoundCheckpoint> read_manifest(const Directory& directory);

/// Fails with ZERO_ERR_CKPT_INVALID if there is none. A search of a folder skips entries that are
/// no checkpoint, and logs them. It fails at an entry that the system refuses, or whose format this
/// library does not read, because that may be the newest. `progress` is called for every manifest
/// read.
Result<FoundCheckpoint> find_checkpoint(const std::string& path, const Progress& progress);

/// True if another save's checkpoint, or none, stands now at the place of `found`.
bool is_replaced(const FoundCheckpoint& found);

/// Explains failures of relative paths, which depend on each rank's working directory.
///
/// Returns `status`, with which a call with `path` ended on all ranks. If it is a failure of a
/// relative path, and ranks have different working directories, its text names them. Collective.
Status with_working_directories(Call& call, std::string_view path, Status status);

}  // namespace zero
