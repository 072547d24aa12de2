// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is open for reading.
#pragma once

#include <string>

#include "state/blocks.h"
#include "state/find.h"
#include "state/manifest.h"

namespace zero::tool {

class Checkpoint {
 public:
  /// `path` is the path of the checkpoint, or of a folder, whose newest checkpoint is opened.
  static Result<Checkpoint> open(const std::string& path);

  const std::string& path() const { return found_.path; }
  const Manifest& manifest() const { return found_.manifest; }
  const Directory& directory() const { return directory_; }
  /// Returns the total size of all its files except the manifest, in bytes.
  uint64_t bytes() const;

  /// Fails if a save has replaced the checkpoint meanwhile, which explains why reading it failed.
  Status check_in_place() const;

 private:
  FoundCheckpoint found_;
  Directory directory_;
};

}  // namespace zero::tool
