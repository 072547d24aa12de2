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
  /// `path`: of it, or of a folder whose newest checkpoint is meant.
  static Result<Checkpoint> open(const std::string& path);

  const std::string& path() const { return found_.path; }
  const Manifest& manifest() const { return found_.manifest; }
  const Directory& directory() const { return directory_; }
  /// Returns the bytes of all its files but the manifest.
  uint64_t bytes() const;

  /// Fails if a save has replaced it since, which explains why reading it failed.
  Status check_in_place() const;

 private:
  FoundCheckpoint found_;
  Directory directory_;
};

}  // namespace zero::tool
