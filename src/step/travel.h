// SPDX-License-Identifier: Apache-2.0
// What travels through a comm's collectives, and whether it travels as it lies: the same on every
// rank.
#pragma once

#include <vector>

#include "step/memory.h"

namespace zero::travel {

/// Every rank's segments, in rank order.
std::vector<std::vector<Segment>> all_segments(const Optimizer& optim);

/// Call part(chunk position, segment) for the parts of `transfer` that are in `segments`.
template <class Part>
void for_each_part(const Transfer& transfer, const std::vector<Segment>& segments,
                   const Part& part) {
  for (const Segment& segment : Plan::within(segments, transfer.share, transfer.chunk)) {
    part(segment.share - transfer.share, segment);
  }
}

inline const Section& section_of(const Optimizer& optim, const Transfer& transfer) {
  return optim.plan.section(transfer.section);
}

/// The type in which a section's gradients travel. What an engine sums itself has the sum's, though
/// its values are rounded.
DType wire(const Optimizer& optim, const Section& section);

/// Gradients travel as they are, where they are.
bool reduces_in_place(const Optimizer& optim, const StepMemory& memory);

/// Only what a step changes is published: gathered in place, all that lies between would be too.
bool publishes_in_place(const Optimizer& optim, const StepMemory& memory);

/// A transfer in place of whole tensors whose owners have parts of so different sizes that padding
/// to the longest would cost more than the better ways that equal parts have.
bool goes_by_owner(const Optimizer& optim, const Transfer& transfer);

/// Of each rank's part of such a transfer: call part(rank, layout position, elements).
template <class Part>
void for_each_owner(const Optimizer& optim, const Transfer& transfer, const Part& part) {
  for (int32_t rank = 0; rank < optim.world(); rank++) {
    const int64_t count = optim.plan.share_elements(static_cast<size_t>(transfer.section), rank);
    if (count > 0) part(rank, transfer.layout + rank * transfer.chunk, count);
  }
}

/// Of all ranks' chunks.
size_t bytes_of(const Optimizer& optim, int64_t elements, DType dtype);

/// False if no rank has a gradient of anything in it, all of it being frozen: it stays as it is.
bool changes(const StepMemory& memory, const Transfer& transfer,
             const std::vector<std::vector<Segment>>& segments);

}  // namespace zero::travel
