// SPDX-License-Identifier: Apache-2.0
// Implements one rank's part of a load. It checks that the checkpoint belongs to this model and
// optimizer. Then it checks every byte against its checksum and every header against the manifest.
// In a second pass it reads the ranges that this rank owns, from the slices that hold them.
#pragma once

#include <deque>
#include <vector>

#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/manifest.h"
#include "state/safetensors.h"
#include "step/memory.h"

namespace zero {

/// The manifest's entry for each registered parameter and buffer.
struct Places {
  std::vector<const ManifestParam*> params;
  std::vector<const ManifestBuffer*> buffers;
  std::deque<ManifestParam> frozen;  // parameters that are buffers in the manifest
};

/// Returns the entries of `manifest`, which must outlive them, or ZERO_ERR_CKPT_MISMATCH with as
/// many differences as fit into a text. A tensor that is not trained may be a parameter in one and
/// a buffer in the other, because an optimizer of only trained parameters registers the rest as
/// buffers.
Result<Places> match_registered(const Manifest& manifest, const Optimizer& optim);

/// Return the rules of an optimizer's groups, and those of a checkpoint's groups, which are null
/// for custom rules. The latter fails if a rule is unknown.
std::vector<const Rule*> rules_of(const Optimizer& optim);
Result<std::vector<const Rule*>> find_rules(const Manifest& manifest);

/// Returns the saved groups, which follow `rules`. A setting that the checkpoint lacks gets its
/// default. A group without a rule is empty. Fails with ZERO_ERR_CKPT_INVALID if a value is out of
/// its range.
Result<std::vector<Group>> saved_groups(const Manifest& manifest,
                                        std::span<const Rule* const> rules);

/// Returns the saved loss scale, or `current` if none was saved. Fails with ZERO_ERR_CKPT_INVALID
/// if it is out of its range.
Result<LossScale> saved_loss_scale(const Manifest& manifest, const LossScale& current);

/// Fails with ZERO_ERR_CKPT_INVALID unless exactly those parameters have a mu_product for which the
/// rule of their group has computed one. `groups` are those of saved_groups().
Status check_products(const Manifest& manifest, std::span<const Group> groups);

/// Fails with ZERO_ERR_CKPT_INVALID unless the header belongs to a file of this save.
Status check_metadata(const SafetensorsHeader& header, const Manifest& manifest);

/// Reads the header of a safetensors file, and verifies the blocks that hold it.
Result<SafetensorsHeader> read_header(BlockReader& reader);

/// Returns the number of blocks of all files together.
uint64_t total_blocks(const Manifest& manifest);

/// Checks blocks [begin, end), counted through all files, against their checksums. Also checks the
/// header of each file whose first block is among them against the manifest. A caller that reads
/// the extras leaves out their files, because reading verifies them.
enum class ExtrasFiles { verified, left_out };
Status verify_blocks(const BlockFiles& files, const Manifest& manifest, uint64_t begin,
                     uint64_t end, ExtrasFiles extras = ExtrasFiles::verified);

/// Verifies this rank's part of the files. All ranks together cover everything.
Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank, int32_t world,
                    ExtrasFiles extras = ExtrasFiles::verified);

/// Returns the slots that a parameter has in the checkpoint, including kMasterSlot, as bits.
uint32_t saved_slots(const ManifestParam& param, const Rule& rule);

/// Fills this rank's share of parameters and state, and on rank 0 the buffers. Slots that the
/// checkpoint lacks become zeros. Master weights that it lacks are made from the parameters. Every
/// byte is verified again before it is used.
Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows);

}  // namespace zero
