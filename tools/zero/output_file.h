// SPDX-License-Identifier: Apache-2.0
// A file that appears as a whole or not at all. It is written under a hidden name next to its final
// one. A signal that ends the program removes it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/file_size_signal.h"
#include "state/blocks.h"

namespace zero::tool {

class OutputFile {
 public:
  /// Fails if something other than a file exists at `path`, or without `replace` if anything does.
  /// Also fails where a checkpoint has its files.
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path, bool replace,
                                                    uint64_t bytes);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status append(std::span<const std::byte> bytes) { return writer_->append(bytes); }
  /// Renames the file to its final name, after all bytes are on stable storage.
  Status publish();

 private:
  OutputFile(Directory parent, std::string name, bool replace, uint64_t drawn);

  const Directory parent_;
  const std::string name_;
  const bool replace_;
  const std::string temporary_;
  const FileSizeSignal no_signal_;
  HostMemory block_;
  std::optional<BlockFiles> files_;
  std::optional<BlockWriter> writer_;
  bool published_ = false;
};

}  // namespace zero::tool
