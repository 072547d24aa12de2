// SPDX-License-Identifier: Apache-2.0
// Writes one rank's files of a checkpoint: parameters, state, and extras if the rank has set any.
// Collects the addresses of all bytes first, so that they can be written without the optimizer.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/layout.h"

namespace zero {

/// Calls visit() with the `bytes` bytes at `from`, part by part, in host memory.
using Show = std::function<Status(const std::byte* from, size_t bytes,
                                  const std::function<Status(std::span<const std::byte>)>& visit)>;

class Shards {
 public:
  /// `writers` has each parameter's writer. Fails with ZERO_ERR_INTERNAL if live state has no
  /// memory.
  static Result<Shards> of(const Optimizer& optim, const std::vector<int32_t>& writers);

  /// Returns all ranges of bytes that write() asks for, each as often as write() does.
  std::vector<std::span<const std::byte>> ranges() const;

  Status write(const BlockFiles& files, const Digest& save_id, const Show& show);
  /// Returns the size of each file that was written, followed by the checksums of its blocks.
  std::string record() const;

 private:
  struct Source {
    const std::byte* values;
    size_t bytes;
    const std::byte* remainders;  // null, or as many bytes of master weights' remainders
  };
  struct Shard {
    const char* kind;
    std::vector<StoredTensor> tensors;
    std::vector<Source> sources;  // one for each tensor
  };

  static Result<Source> source_of(const Optimizer& optim, const StoredTensor& tensor);
  static Status append(BlockWriter& file, const Source& source, const Show& show);
  static Status append_joined(BlockWriter& file, const Source& source, const Show& show);

  int32_t rank_ = 0, world_ = 1;
  std::array<Shard, 2> shards_;
  Extras extras_;
  std::vector<FileRecord> written_;
};

/// Copies the sizes and checksums of a rank's two or three files from its record into the manifest.
Status take_record(Manifest& manifest, int32_t rank, std::string_view record);

}  // namespace zero
