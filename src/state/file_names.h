// SPDX-License-Identifier: Apache-2.0
// What the files of a checkpoint are called.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

inline constexpr const char* kManifestName = "zero.json";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr const char* kExtra = "extra";  // the kind of files with extras

/// Returns "optim-00002-of-00004.safetensors" for rank 1 of 4. `kind` is "optim", "model" or
/// "extra".
std::string shard_name(std::string_view kind, int32_t rank, int32_t world);

/// Returns all files that a save of `world` ranks may write: model files by rank, optim files by
/// rank, the index, the manifest, files of extras by rank.
std::vector<std::string> file_names(int32_t world);

/// True for a name that a save of some world gives a file. Such files may be removed with a
/// checkpoint.
bool is_checkpoint_file(std::string_view name);

/// True for files with tensors that are loaded. Others are only listed and verified.
bool is_tensor_file(std::string_view name);

}  // namespace zero
