// SPDX-License-Identifier: Apache-2.0
// Which file of a checkpoint holds what, if other ranks save it.
#pragma once

#include "state/manifest.h"

namespace zero::tool {

/// Assigns all tensors to the files of `world` ranks, as a save of a run with even shares does. The
/// files have no sizes and checksums yet, and there are no extras.
Status share_out(Manifest& manifest, int32_t world);

}  // namespace zero::tool
