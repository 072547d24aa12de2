// SPDX-License-Identifier: Apache-2.0
// One rank's part of a load. It checks that the checkpoint is one of this model and optimizer. Then
// it makes two passes over the files. The first checks every byte by its checksum and every header
// by the manifest. The second reads the owned ranges of this rank, from whatever slices hold them.
#pragma once

#include <deque>
#include <vector>

#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/manifest.h"
#include "state/safetensors.h"
#include "step/memory.h"

namespace zero {

/// What a manifest has for each registered parameter and buffer.
struct Places {
  std::vector<const ManifestParam*> params;
  std::vector<const ManifestBuffer*> buffers;
  std::deque<ManifestParam> frozen;  // parameters that are buffers in the manifest
};

/// Returns what `manifest`, which must outlive it, has, or ZERO_ERR_CKPT_MISMATCH with as many
/// differences as a text has room for. What is not trained may be a buffer in one and a parameter
/// in the other: an optimizer of what is trained leaves the rest of the model to its buffers.
Result<Places> match_registered(const Manifest& manifest, const Optimizer& optim);

/// Returns each group's settings as saved, in the rule's order. A setting that the checkpoint lacks
/// gets its default. Fails with ZERO_ERR_CKPT_INVALID if one is out of its range.
Result<std::vector<Group>> saved_settings(const Manifest& manifest, const Rule& rule);

/// Returns the loss scale as it was saved, or `current` if none was. Fails with
/// ZERO_ERR_CKPT_INVALID if it is out of its range.
Result<LossScale> saved_loss_scale(const Manifest& manifest, const LossScale& current);

/// Fails with ZERO_ERR_CKPT_INVALID unless exactly those parameters have a mu_product for which the
/// rule made one.
Status check_products(const Manifest& manifest, const Rule& rule);

/// Fails with ZERO_ERR_CKPT_INVALID unless the header says that its file is of this save.
Status check_metadata(const SafetensorsHeader& header, const Manifest& manifest);

/// Reads the header of a safetensors file, and verifies its blocks.
Result<SafetensorsHeader> read_header(BlockReader& reader);

/// Returns how many blocks all files have.
uint64_t total_blocks(const Manifest& manifest);

/// Compares blocks [begin, end), counted through all files, with their checksums, and the header of
/// each file whose first block is among them with the manifest. Who reads the extras, which
/// verifies them, leaves out their files.
enum class ExtrasFiles { verified, left_out };
Status verify_blocks(const BlockFiles& files, const Manifest& manifest, uint64_t begin,
                     uint64_t end, ExtrasFiles extras = ExtrasFiles::verified);

/// Does this rank's part of the verification. All ranks together cover everything.
Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank, int32_t world,
                    ExtrasFiles extras = ExtrasFiles::verified);

/// Returns the slots that a parameter has in the checkpoint, kMasterSlot too, as bits.
uint32_t saved_slots(const ManifestParam& param, const Rule& rule);

/// Fills this rank's share of parameters and state, and on rank 0 buffers, too. Slots that the
/// checkpoint lacks become zeros; masters that it lacks are made from parameters. Every byte is
/// verified once more before it is used.
Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows);

}  // namespace zero
