// SPDX-License-Identifier: Apache-2.0
// Assigns the contents of a checkpoint to files for another number of ranks.
#pragma once

#include "state/manifest.h"

namespace zero::tool {

/// Assigns all tensors to the files of `world` ranks, as a save with even shares does. The files
/// have no sizes and checksums yet, and there are no extras.
Status share_out(Manifest& manifest, int32_t world);

}  // namespace zero::tool
