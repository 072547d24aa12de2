// SPDX-License-Identifier: Apache-2.0
// Finds the checkpoint for a path that a program passes to a load. It is the directory at that path
// or, if that is not a checkpoint, the newest sound checkpoint in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "comm/comm.h"
#include "state/manifest.h"

namespace zero {

/// The most attempts that a search or a load makes while other saves replace the checkpoint.
inline constexpr int kMostReplacements = 8;

struct FoundCheckpoint {
  std::string path;
  std::string bytes;  // the content of the manifest file
  Manifest manifest;
};

/// A complete checkpoint in a folder.
struct ListedCheckpoint {
  int64_t step;
  std::string name;  // of the directory
  int32_t world;
  uint64_t bytes;  // of all files together
  Digest save_id;
};

/// Returns the checkpoints in a folder from which a load would choose, newest first. Skips entries
/// and fails as find_checkpoint() does. Returns an empty list if the folder does not exist.
Result<std::vector<ListedCheckpoint>> list_checkpoints(const std::string& folder);

/// Returns the checkpoint in `directory`. Fails with ZERO_ERR_CKPT_INVALID unless there is a sound
/// manifest.
Result<FoundCheckpoint> read_manifest(const Directory& directory);

/// Returns the checkpoint for `path`. Fails with ZERO_ERR_CKPT_INVALID if there is none. A search
/// of a folder skips entries that are not checkpoints, and logs them. It fails if the system cannot
/// read an entry, or if this library does not support the format of the entry, because that may be
/// the newest checkpoint. Calls `progress` before it reads each entry of a folder.
Result<FoundCheckpoint> find_checkpoint(const std::string& path, const Progress& progress);

/// Returns true if the path of `found` now holds another save's checkpoint, or none.
bool is_replaced(const FoundCheckpoint& found);

/// Returns `status`, with which a call that was passed `path` has ended on all ranks. If `status`
/// is a failure, `path` is relative, and ranks have different working directories, adds two of
/// these to the text. Collective.
Status with_working_directories(Call& call, std::string_view path, Status status);

}  // namespace zero
