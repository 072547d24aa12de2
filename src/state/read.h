// SPDX-License-Identifier: Apache-2.0
// The two passes of a load over the files: every byte of every file against its checksum and every
// header against the manifest; then the owned ranges of one rank, from whatever slices hold them.
#pragma once

#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/compare.h"
#include "state/manifest.h"
#include "state/safetensors.h"
#include "step/memory.h"

namespace zero {

/// This rank's part of the verification; all ranks together cover everything.
Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank, int32_t world);

/// The header of a safetensors file, read through its checksums.
Result<SafetensorsHeader> read_header(BlockReader& reader);

/// The slots that a parameter has in the checkpoint, kMasterSlot among them, as bits.
uint32_t saved_slots(const ManifestParam& param, const Rule& rule);

/// Fill this rank's share of parameters and state; slots that the checkpoint does not have become
/// zeros, masters the parameters; on rank 0 buffers, too. Every byte is verified once more before
/// it is used.
Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows);

}  // namespace zero
