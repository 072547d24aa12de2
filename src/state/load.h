// SPDX-License-Identifier: Apache-2.0
// What one rank does in a load: whether the checkpoint is one of this model and optimizer; and the
// two passes over its files, every byte of every file against its checksum and every header against
// the manifest, then the owned ranges of this rank, from whatever slices hold them.
#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/manifest.h"
#include "step/memory.h"

namespace zero {

/// Where in a manifest each registered parameter and buffer stands.
struct Places {
  std::vector<size_t> params, buffers;
};

/// The places, or ZERO_ERR_CKPT_MISMATCH with every difference.
Result<Places> match_registered(const Manifest& manifest, const Optimizer& optim);

/// Each group's settings as saved, in the order of the rule's. A setting that the checkpoint does
/// not have gets its default. ZERO_ERR_CKPT_INVALID if one is out of its range.
Result<std::vector<Group>> saved_settings(const Manifest& manifest, const Rule& rule);

/// The loss scale as it was saved, `current` where none was. ZERO_ERR_CKPT_INVALID if it is none.
Result<LossScale> saved_loss_scale(const Manifest& manifest, const LossScale& current);

/// ZERO_ERR_CKPT_INVALID unless a parameter has a mu_product exactly where its rule made one.
Status check_products(const Manifest& manifest, const Rule& rule);

/// This rank's part of the verification; all ranks together cover everything.
Status verify_files(const BlockFiles& files, const Manifest& manifest, int32_t rank, int32_t world);

/// The slots that a parameter has in the checkpoint, kMasterSlot among them, as bits.
uint32_t saved_slots(const ManifestParam& param, const Rule& rule);

/// Fill this rank's share of parameters and state; slots that the checkpoint does not have become
/// zeros, masters the parameters; on rank 0 buffers, too. Every byte is verified once more before
/// it is used.
Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows);

}  // namespace zero
