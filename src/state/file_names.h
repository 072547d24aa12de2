// SPDX-License-Identifier: Apache-2.0
// Names the files of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

inline constexpr const char* kManifestName = "zero.json";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr const char* kExtra = "extra";  // the kind of extras files

/// Returns "optim-00002-of-00004.safetensors" for rank 1 of 4. `kind` is "optim", "model" or
/// "extra".
std::string shard_name(std::string_view kind, int32_t rank, int32_t world);

/// Returns the names of all files that a save of `world` ranks may write: model files by rank,
/// optim files by rank, the index, the manifest, extras files by rank.
std::vector<std::string> file_names(int32_t world);

/// Returns true for a name that a save by any number of ranks gives to a file. Such files may be
/// removed together with a checkpoint.
bool is_checkpoint_file(std::string_view name);

/// Returns true for a file that holds tensors of parameters, buffers or state.
bool is_tensor_file(std::string_view name);

}  // namespace zero
