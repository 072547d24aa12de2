// SPDX-License-Identifier: Apache-2.0
#include "state/prune.h"

#include <algorithm>
#include <vector>

#include "base/interrupt.h"
#include "base/os.h"
#include "base/refusals.h"
#include "state/commit.h"
#include "state/find.h"
#include "state/load.h"

namespace zero {
namespace {

Status go_on() {
  return interrupted() ? Status(ZERO_ERR_ABORTED, "the program interrupted the prune") : Status();
}

/// Fails unless the checkpoint is the one that was listed and all its files match their checksums.
Status verify(const Directory& parent, const ListedCheckpoint& listed) {
  const Directory directory = ZERO_TRY(open_directory(parent, listed.name, Links::refused));
  const FoundCheckpoint found = ZERO_TRY(read_manifest(directory));
  if (found.manifest.save_id != listed.save_id)
    return wrong_state("'", directory.path, "' was replaced in the meantime");
  const HostMemory block = ZERO_TRY(allocate_block());
  return verify_files({directory, block.data(), go_on}, found.manifest, 0, 1);
}

}  // namespace

Result<size_t> prune_checkpoints(const std::string& folder, int64_t keep_last, int64_t keep_every) {
  if (keep_last < 1) return bad_argument("keep_last is ", keep_last, "; it must be at least 1");
  if (keep_every < 0)
    return bad_argument("keep_every is ", keep_every, "; it must not be negative");
  const std::vector<ListedCheckpoint> listed = ZERO_TRY(list_checkpoints(folder));
  std::vector<ListedCheckpoint> doomed;
  for (size_t i = static_cast<size_t>(keep_last); i < listed.size(); i++) {
    if (keep_every == 0 || listed[i].step % keep_every != 0) doomed.push_back(listed[i]);
  }
  if (doomed.empty()) return size_t{0};
  const Directory parent = ZERO_TRY(open_directory(start_of_paths(), folder, Links::followed));
  ZERO_TRY(verify(parent, listed.front()).within("nothing was deleted"));
  os().reached("prune.verified");
  std::ranges::reverse(doomed);  // the oldest first
  size_t deleted = 0;
  for (const ListedCheckpoint& one : doomed)
    deleted += ZERO_TRY(delete_checkpoint(parent, one.name, one.save_id));
  return deleted;
}

}  // namespace zero
