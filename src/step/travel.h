// SPDX-License-Identifier: Apache-2.0
// What travels through a comm's collectives, and whether it travels as it lies: the same on every
// rank.
#pragma once

#include <span>
#include <vector>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero::travel {

/// One transfer, and what is copied for it: into the buffer that is sent, out of what is received.
struct Travel {
  Transfer transfer;
  bool in_place = false;
  bool by_owner = false;  // in place on a device: each rank's part by itself, none padded to the
                          // longest
  std::vector<launch::Move> pack{}, unpack{};
};

/// The transfers of a step, in the order of travel: those of gradients, those of parameters. Left
/// out is what no rank has a gradient of, all of it being frozen: it stays as it is.
std::vector<Travel> reductions(const Optimizer& optim, const StepMemory& memory);
std::vector<Travel> gathers(const Optimizer& optim, const StepMemory& memory);

/// This rank's own gradients of what it owns, as if they were the sums.
std::vector<SectionMove> own_gradients(const Optimizer& optim, const StepMemory& memory);

/// Bytes of the buffers for all transfers: of what is summed, of what is packed, of what comes
/// packed.
struct Room {
  size_t summed = 0, sent = 0, received = 0;
};
Room room_for(const Optimizer& optim, const StepMemory& memory);

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

/// `elements` behind an address; what is null stays so.
template <class Byte>
Byte* moved(Byte* from, int64_t elements, DType dtype) {
  return from == nullptr ? nullptr : from + elements * static_cast<int64_t>(size_of(dtype));
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

/// Of each rank's part of a transfer by owner: call part(rank, layout position, elements).
template <class Part>
void for_each_owner(const Optimizer& optim, const Transfer& transfer, const Part& part) {
  for (int32_t rank = 0; rank < optim.world(); rank++) {
    const int64_t count = optim.plan.share_elements(static_cast<size_t>(transfer.section), rank);
    if (count > 0) part(rank, transfer.layout + rank * transfer.chunk, count);
  }
}

/// Of all ranks' chunks.
size_t bytes_of(const Optimizer& optim, int64_t elements, DType dtype);

/// Count what a transfer reads and writes at the least: this rank's buffer once out and once in.
void count_moved(Optimizer& optim, const Travel& travel, DType dtype);

// ---- The host's way, transfer by transfer, packing what does not lie as the plan lays it out.

/// Reduce-scatter of gradients, to arriving_sums().
Status reduce(Call& call, Optimizer& optim, StepMemory& memory);
/// All-gather of the owned parameters.
Status publish(Call& call, Optimizer& optim, StepMemory& memory);

// ---- Arenas that travel as they lie, which a backend may have mapped on other ranks.

Layouts layouts_of(const Optimizer& optim, const Placed& placed);

/// From the entries of all ranks: arenas that all can map, at the same place, are mapped, once.
/// What lies in one that was, but not at the same place everywhere, travels packed: work in mapped
/// memory looks for every rank's at the place of its own.
Status use_arenas(const Call& call, const Optimizer& optim, StepMemory& memory,
                  std::span<const Layouts> all);

}  // namespace zero::travel
