// SPDX-License-Identifier: Apache-2.0
// Keeps the caller's own bytes in checkpoints as extras, such as random states, positions in the
// data and configurations. Each rank has one file of extras, with a U8 tensor for each name.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/manifest.h"
#include "state/safetensors.h"

namespace zero {

/// Sets the extra `name`, which the next saves write. Removes it if `bytes` is null.
Status set_extra(Optimizer& optim, std::string_view name, const void* bytes, size_t count);

/// Returns the extra `name` that `rank` saved in the loaded checkpoint.
Result<std::string_view> find_extra(const Optimizer& optim, int32_t rank, std::string_view name);

/// Returns the extras file of `rank` of `world`.
Result<std::string> extras_file(const Extras& extras, const Digest& save_id, int32_t rank,
                                int32_t world);

/// Returns the total size of all extras files in bytes.
uint64_t extras_bytes(const Manifest& manifest);

/// Reads all extras files into `to`, one after the other, and verifies them.
Status read_extras(const BlockFiles& files, const Manifest& manifest, std::span<std::byte> to);

/// Checks the header of an extras file.
Status check_extras_header(const SafetensorsHeader& header, const Manifest& manifest);

/// Returns the extras that one rank saved.
Result<Extras> read_extras_of(const BlockFiles& files, const Manifest& manifest,
                              const ManifestExtras& extras);

/// Returns the extras in the concatenated `files`, by the rank that saved them.
Result<std::map<int32_t, ExtraViews>> parse_extras(std::string_view files,
                                                   const Manifest& manifest);

Extras copy_of(const ExtraViews& views);

}  // namespace zero
