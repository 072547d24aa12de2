// SPDX-License-Identifier: Apache-2.0
// A directory of files that appears as a whole or not at all, as that of a save does. It is written
// under the name of an unfinished checkpoint. A signal that ends the program removes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file_size_signal.h"
#include "state/blocks.h"
#include "state/commit.h"

namespace zero::tool {

class OutputDirectory {
 public:
  /// `files` lists all files that may be written. Fails if something exists at `path`. With
  /// `replace`, fails only if that is not a directory or has a file that no checkpoint has.
  static Result<std::unique_ptr<OutputDirectory>> create(const std::string& path, bool replace,
                                                         const std::vector<std::string>& files);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  const Digest& save_id() const { return staging_.save_id(); }
  const BlockFiles& files() const { return files_; }
  /// Renames the directory to its final name, after all files are on stable storage. A signal ends
  /// the wait for another save. After that, signals wait until the replaced directory, which has
  /// the temporary name then, is removed.
  Status publish();

 private:
  static constexpr int64_t kWaitMs = 10'000;  // for a save that replaces the same directory

  OutputDirectory(Staging staging, HostMemory block);

  const FileSizeSignal no_signal_;
  Staging staging_;
  HostMemory block_;
  const BlockFiles files_;
};

}  // namespace zero::tool
