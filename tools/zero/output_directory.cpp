// SPDX-License-Identifier: Apache-2.0
#include "output_directory.h"

#include "base/refusals.h"
#include "ending.h"

namespace zero::tool {

OutputDirectory::OutputDirectory(Staging staging, HostMemory block)
    : staging_(std::move(staging)),
      block_(std::move(block)),
      files_{staging_.directory(), block_.data(), unhindered} {}

Result<std::unique_ptr<OutputDirectory>> OutputDirectory::create(
    const std::string& path, bool replace, const std::vector<std::string>& files) {
  struct stat info;
  if (!replace && stat_entry(start_of_paths(), path, info) == 0)
    return wrong_state("'", path, "' exists: remove it, or give --replace");
  HostMemory block = ZERO_TRY(allocate_block());
  const EndingHeld held;
  Staging staging = ZERO_TRY(Staging::begin(path, replace, files, unhindered));
  const Directory& directory = staging.directory();
  std::vector<std::string> paths;
  for (const std::string& file : files) paths.push_back(directory.path_of(file));
  remove_on_signals(std::move(paths), directory.path);
  return std::unique_ptr<OutputDirectory>(
      new OutputDirectory(std::move(staging), std::move(block)));
}

Status OutputDirectory::publish() {
  const EndingHeld held;
  const Progress unless_ended = [&] {
    return held.waits() ? Status(ZERO_ERR_ABORTED, "a signal came") : Status();
  };
  return staging_.publish(unless_ended, kWaitMs, [] { return true; });
}

}  // namespace zero::tool
