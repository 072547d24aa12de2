// SPDX-License-Identifier: Apache-2.0
// Reads the tensors of a checkpoint as a whole, whatever slices and files they are in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint.h"
#include "state/safetensors.h"

namespace zero::tool {

/// A parameter, a buffer, or a slot of a parameter's state.
struct WholeTensor {
  std::string_view owner;  // the parameter or buffer
  std::string_view slot;   // "" for the parameter or buffer itself
  std::string_view dtype;
  const std::vector<int64_t>* shape;
  int64_t count;
  std::vector<ManifestSlice> slices;  // sorted by start

  std::string name() const;  // such as "wte.weight.exp_avg"
  uint64_t bytes() const { return static_cast<uint64_t>(count) * dtype_bytes(dtype); }
};

/// Fills `to` with the elements of a tensor from `first` on.
using Read =
    std::function<Status(const WholeTensor& tensor, int64_t first, std::span<std::byte> to)>;

/// Returns all tensors, sorted by owner and slot, which is nearly their order in files. They point
/// into the manifest.
std::vector<WholeTensor> tensors_of(const Manifest& manifest, bool with_state);

/// Reads and verifies parts of tensors. It holds the latest block of a few files, so that reading
/// tensors in order reads each block about once. The checkpoint must outlive it.
class TensorReader {
 public:
  explicit TensorReader(const Checkpoint& of) : of_(of) {}
  /// Fills `to` from element `first` on.
  Status read(const WholeTensor& tensor, int64_t first, std::span<std::byte> to);
  Read as_read() {
    return [this](const WholeTensor& tensor, int64_t first, std::span<std::byte> to) {
      return read(tensor, first, to);
    };
  }

 private:
  struct OpenShard {
    int32_t file;
    HostMemory block;
    BlockFiles files;
    std::optional<BlockReader> reader;
  };
  struct Header {
    uint64_t data_start;
    std::map<std::string, TensorEntry, std::less<>> tensors;
  };

  Result<BlockReader*> open(int32_t file);
  /// Returns the offset in the file at which a slice begins.
  Result<uint64_t> find(BlockReader& reader, const ManifestSlice& slice, std::string_view dtype);

  const Checkpoint& of_;
  std::list<OpenShard> open_;  // the latest first
  std::map<int32_t, Header> headers_;
};

/// Calls visit(first, count) for consecutive parts of the elements, of at most kPartBytes each.
inline constexpr int64_t kPartBytes = 1 << 20;
template <class Visit>
Status in_parts(std::string_view dtype, int64_t elements, const Visit& visit) {
  const int64_t most = kPartBytes / static_cast<int64_t>(dtype_bytes(dtype));
  for (int64_t first = 0; first < elements; first += most)
    ZERO_TRY(visit(first, std::min(most, elements - first)));
  return {};
}

}  // namespace zero::tool
