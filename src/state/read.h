// SPDX-License-Identifier: Apache-2.0
// The second pass of a load: the owned ranges of one rank, from whatever slices hold them.
#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "state/blocks.h"
#include "state/compare.h"
#include "state/manifest.h"
#include "step/windows.h"

namespace zero {

/// The slots that a parameter has in the checkpoint, kMasterSlot among them, as bits.
uint32_t saved_slots(const ManifestParam& param, const Rule& rule);

/// Fill this rank's share of parameters and state; slots that the checkpoint does not have become
/// zeros, masters the parameters; on rank 0 buffers, too. Every byte is verified once more before
/// it is used.
Status read_share(const BlockFiles& files, const Manifest& manifest, const Places& places,
                  const Optimizer& optim, Windows& windows);

}  // namespace zero
