// SPDX-License-Identifier: Apache-2.0
// The files of zero_trace_start in one directory, which may still grow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "output.h"

namespace zero::tool {

/// One rank's file. Only whole lines of it are read.
class TraceFile {
 public:
  static Result<TraceFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& group() const { return group_; }
  int32_t rank() const { return rank_; }
  int32_t world() const { return world_; }
  /// True once its end has been read, or if its writer died.
  bool ended() const;
  /// True if both are the same file, and not one that took the place of the other.
  bool same_as(const TraceFile& other) const {
    return path_ == other.path_ && inode_ == other.inode_;
  }

  using Take = std::function<Status(std::string_view line, const Json& event)>;
  /// Reads what has come since. A line has no comma and no end.
  Status read(const Take& take);
  /// Passes over what is there.
  Status skip();
  /// Begins from the start again, and reads as far as before.
  void rewind();

 private:
  TraceFile() = default;
  void resume();
  Result<std::string_view> next_line();

  std::string path_, group_, line_;
  int32_t rank_ = 0, world_ = 0;
  uint64_t inode_ = 0;
  std::ifstream in_;
  std::streamoff at_ = 0, next_ = 0, limit_ = -1;  // behind the last event, line; -1: none
  bool ended_ = false;
};

/// True for what a trace's file is called.
bool names_trace(const std::filesystem::path& path);

/// Returns the files of a directory, in the order of groups and ranks, without what another job of
/// another size left there.
Result<std::vector<TraceFile>> open_traces(const std::string& directory);

}  // namespace zero::tool
