// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include "base/refusals.h"

namespace zero::tool {

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Checkpoint opened;
  opened.found_ = ZERO_TRY(find_checkpoint(path, unhindered));
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
