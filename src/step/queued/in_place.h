// SPDX-License-Identifier: Apache-2.0
// Transfers of arenas as they lie, which a backend may have mapped on other ranks.
#pragma once

#include <span>

#include "step/memory.h"

namespace zero::queued {

Layouts layouts_of(const Optimizer& optim, const StepMemory& memory);

/// From the entries of all ranks: arenas that all can map, at the same place, are mapped, once.
/// What lies in one that was, but not at the same place everywhere, travels packed: work in mapped
/// memory looks for every rank's at the place of its own.
Status use_arenas(const Call& call, const Optimizer& optim, StepMemory& memory,
                  std::span<const Layouts> all);

}  // namespace zero::queued
