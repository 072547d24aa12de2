// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include "base/refusals.h"
#include "base/text.h"
#include "warnings.h"

namespace zero::tool {

namespace {

/// Finds the checkpoint. Reports only how many entries of the folder are not checkpoints.
Result<FoundCheckpoint> find(const std::string& path) {
  const HeldWarnings skipped;
  auto found = find_checkpoint(path, unhindered);
  if (found.ok()) {
    skipped.print_some();
  } else if (skipped.count() > 0) {
    const Status& why = found.failure();
    return Status(why.code(), text(why.text(), "; skipped: ", skipped.count(),
                                   " of its entries (a checkpoint has a zero.json)"));
  }
  return found;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Checkpoint opened;
  opened.found_ = ZERO_TRY(find(path));
  opened.directory_ = ZERO_TRY(open_directory(start_of_paths(), opened.path(), Links::followed));
  return opened;
}

uint64_t Checkpoint::bytes() const {
  uint64_t bytes = 0;
  for (const FileRecord& file : manifest().files) bytes += file.bytes;
  return bytes;
}

Status Checkpoint::check_in_place() const {
  if (!is_replaced(found_)) return {};
  return wrong_state("'", path(), "' was replaced or removed while it was read: try again");
}

}  // namespace zero::tool
