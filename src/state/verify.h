// SPDX-License-Identifier: Apache-2.0
// The first pass of a load: every byte of every file against its checksum, every header against the
// manifest.
#pragma once

#include "state/blocks.h"
#include "state/manifest.h"
#include "state/safetensors.h"

namespace zero {

/// This rank's part of the verification; all ranks together cover everything.
Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank, int32_t world);

/// The header of a safetensors file, read through its checksums.
Result<SafetensorsHeader> read_header(BlockReader& reader);

}  // namespace zero
