// SPDX-License-Identifier: Apache-2.0
#include "step/queued/in_place.h"

#include <algorithm>

#include "comm/comm.h"

namespace zero::queued {
namespace {

/// Of the layout that each rank's entry has at `of`. Every rank finds the same, as all read the
/// same entries and have mapped the same arenas.
Status use_arena(QueuedPlane& plane, Use use, std::span<const Layouts> all, Location Layouts::*of,
                 bool may_map, bool& in_place) {
  if (!in_place) return Status();
  const Location& first = all[0].*of;
  const bool same =
      std::all_of(all.begin(), all.end(), [&](const Layouts& rank) { return rank.*of == first; });
  if (!same) {
    in_place = std::none_of(all.begin(), all.end(), [&](const Layouts& rank) {
      return plane.was_mapped((rank.*of).arena);
    });
    return Status();
  }
  if (first.arena == 0 || plane.was_mapped(first.arena) || !may_map) return Status();
  return plane.map_arena(use, first);
}

}  // namespace

Layouts layouts_of(const Optimizer& optim, const StepMemory& memory) {
  const QueuedPlane* const plane = optim.comm->queued();
  if (plane == nullptr) return {};
  return {plane->mappable(memory.grads_base), plane->mappable(memory.data_base)};
}

Status use_arenas(const Call& call, const Optimizer& optim, StepMemory& memory,
                  std::span<const Layouts> all) {
  QueuedPlane* const plane = optim.comm->queued();
  if (plane == nullptr) return Status();
  const bool may_map = call.capture() == 0;  // a capture is no time to map memory
  ZERO_TRY(use_arena(*plane, Use::reduce, all, &Layouts::grads, may_map, memory.grads_in_place));
  return use_arena(*plane, Use::gather, all, &Layouts::data, may_map, memory.data_in_place);
}

}  // namespace zero::queued
