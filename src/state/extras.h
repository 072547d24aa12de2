// SPDX-License-Identifier: Apache-2.0
// Bytes of the caller's own in checkpoints: random states, positions in the data, configurations.
// Each rank has one file of them, with a tensor of U8 for each name.
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

/// Sets what the next saves hold under that name; removes it if `bytes` is null.
Status set_extra(Optimizer& optim, std::string_view name, const void* bytes, size_t count);

/// Returns what `rank` saved under that name in the checkpoint that was loaded.
Result<std::string_view> find_extra(const Optimizer& optim, int32_t rank, std::string_view name);

/// Returns the file of what `rank` of `world` has set.
Result<std::string> extras_file(const Extras& extras, const Digest& save_id, int32_t rank,
                                int32_t world);

/// Returns how many bytes all files of extras have.
uint64_t extras_bytes(const Manifest& manifest);

/// Reads all files of extras, one after the other, to `to`, and verifies them.
Status read_extras(const BlockFiles& files, const Manifest& manifest, std::span<std::byte> to);

/// Checks the header of a file of extras.
Status check_extras_header(const SafetensorsHeader& header, const Manifest& manifest);

/// Returns what one rank saved.
Result<Extras> read_extras_of(const BlockFiles& files, const Manifest& manifest,
                              const ManifestExtras& extras);

/// Returns what such files hold, by the ranks that saved it.
Result<std::map<int32_t, ExtraViews>> parse_extras(std::string_view files,
                                                   const Manifest& manifest);

Extras copy_of(const ExtraViews& views);

}  // namespace zero
