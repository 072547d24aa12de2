// SPDX-License-Identifier: Apache-2.0
// Decides which rank writes which tensor under which name. The result depends only on the
// optimizer's plan and live slots, so every rank knows the whole checkpoint without communication.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "optim/optimizer.h"
#include "state/manifest.h"
#include "state/safetensors.h"

namespace zero {

inline constexpr int kParameterItself = -1;
inline constexpr int kBufferItself = -2;

/// A tensor in a file of a checkpoint: a part of a parameter or of one of its slots, or a buffer.
struct StoredTensor {
  std::string key;
  DType dtype = DType::f32;
  int slot = kParameterItself;
  Segment part{};              // `param` may be the number of a buffer
  std::vector<int64_t> shape;  // as stored: the shape of the whole tensor, or [count] for a part
};

/// Return the rank that writes each parameter. The largest parameter is assigned first, and each
/// goes to the rank with the fewest elements so far.
Result<std::vector<int32_t>> param_writers(std::span<const int64_t> counts, int32_t world);
Result<std::vector<int32_t>> param_writers(const Optimizer& optim);

/// Returns the name and version of this library, for Manifest::created_by.
std::string creator();

/// Returns the files of a checkpoint without extras: model files by rank, optim files by rank, the
/// index. Their sizes and checksums are not set.
std::vector<FileRecord> shard_files(int32_t world);

/// Returns the metadata in the header of each file that `rank` of `world` writes.
std::vector<std::pair<std::string, std::string>> shard_metadata(const Digest& save_id, int32_t rank,
                                                                int32_t world);

/// Returns the slots of a parameter that hold values, as bits: those of the rule and kMasterSlot.
/// Master weights are always stored as fp32.
uint32_t stored_slots(const Optimizer& optim, int64_t param);
/// Returns the type in which files hold a slot of a parameter.
DType stored_dtype(const Optimizer& optim, int64_t param, int slot);

/// Return the tensors that `rank` writes to its model file and to its optim file, in file order.
/// Rank 0 writes the buffers.
std::vector<StoredTensor> model_tensors(const Optimizer& optim, const std::vector<int32_t>& writers,
                                        int32_t rank);
std::vector<StoredTensor> optim_tensors(const Optimizer& optim, int32_t rank);

/// Returns the header of the file that `rank` of `world` writes.
SafetensorsHeader file_header(const std::vector<StoredTensor>& tensors, const Digest& save_id,
                              int32_t rank, int32_t world);

/// Returns the manifest without extras. Its files are shard_files(), without sizes and checksums.
Manifest describe_checkpoint(const Optimizer& optim, const Digest& save_id,
                             const std::vector<int32_t>& writers);

/// Fails with ZERO_ERR_ARGUMENT if the format reserves the name of a tensor.
Status check_saveable(const Optimizer& optim);

}  // namespace zero
