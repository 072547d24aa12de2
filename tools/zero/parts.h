// SPDX-License-Identifier: Apache-2.0
// Writes files of tensors from tensors that are stored elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "output_directory.h"
#include "progress.h"
#include "state/extras.h"
#include "tensors.h"

namespace zero::tool {

/// A tensor to write: elements [first, first + count) of a whole tensor.
struct Part {
  std::string key;
  const WholeTensor* of;
  int64_t first, count;
};

using Append = std::function<Status(std::span<const std::byte> bytes)>;
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// One safetensors file of parts.
class PartsFile {
 public:
  static Result<PartsFile> of(Metadata metadata, std::vector<Part> parts);
  uint64_t bytes() const { return head_.size() + header_.data_bytes(); }
  /// Writes the parts in the order of the header that build_safetensors_header() has made.
  Status write(const Read& read, const Append& append) const;

 private:
  SafetensorsHeader header_;
  std::string head_;
  std::map<std::string, Part, std::less<>> parts_;
};

/// Where the tensors of shards come from, and the metadata of their headers.
struct ShardSource {
  std::vector<WholeTensor> tensors;  // of the manifest to write, as tensors_of() returns them
  Read read;
  std::function<Metadata(int32_t rank)> metadata;
};

/// Writes the files of shard_files() to which the manifest assigns tensors, and the index. Sets
/// their sizes and checksums in the manifest.
Status write_shards(const OutputDirectory& to, Manifest& manifest, const ShardSource& source);
/// Writes a whole checkpoint and renames it. `extras` has those of each rank that has any.
Status write_checkpoint(OutputDirectory& to, Manifest& manifest, std::vector<WholeTensor> tensors,
                        const Read& read, const std::map<int32_t, Extras>& extras);

}  // namespace zero::tool
