// SPDX-License-Identifier: Apache-2.0
// Reads the files of zero_trace_start in one directory, which may still grow.
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

/// One rank's file. Only whole lines are read.
class TraceFile {
 public:
  static Result<TraceFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& group() const { return group_; }
  int32_t rank() const { return rank_; }
  int32_t world() const { return world_; }
  /// Returns true if its end has been read, or if its writer has died.
  bool ended() const;
  /// Returns true if both are the same file, rather than one that has replaced the other.
  bool same_as(const TraceFile& other) const {
    return path_ == other.path_ && inode_ == other.inode_;
  }

  using Take = std::function<Status(std::string_view line, const Json& event)>;
  /// Reads the events that were added since the last call. A line has no comma and no line end.
  Status read(const Take& take);
  /// Skips the events that are there.
  Status skip();
  /// Goes back to the start, and limits reading to the events that have been read.
  void rewind();

 private:
  TraceFile() = default;
  void resume();
  Result<std::string_view> next_line();

  std::string path_, group_, line_;
  int32_t rank_ = 0, world_ = 0;
  uint64_t inode_ = 0;
  std::ifstream in_;
  std::streamoff at_ = 0, next_ = 0, limit_ = -1;  // after the last event, line; -1: no limit
  bool ended_ = false;
};

/// Returns true if the file name is that of a trace.
bool names_trace(const std::filesystem::path& path);

/// Returns the files of a directory, sorted by group and rank, without those that a job of another
/// size left there.
Result<std::vector<TraceFile>> open_traces(const std::string& directory);

}  // namespace zero::tool
