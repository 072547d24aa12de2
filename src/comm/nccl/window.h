// SPDX-License-Identifier: Apache-2.0
// Symmetric windows: arenas that NCCL has mapped on every rank, so that its work reads and writes
// them where they are.
#pragma once

#include <memory>

#include "comm/nccl/channel.h"
#include "comm/private_arena.h"

namespace zero::nccl {

/// Map `arena` for the work of `channel`; collective over its ranks, each with an arena of the same
/// size. The arena gives it back before its memory goes. OK where NCCL says that it has no windows
/// here, too: all works without.
Status open_window(const Library& library, Channel& channel, PrivateArena& arena,
                   const Bounds& bounds);

}  // namespace zero::nccl
