// SPDX-License-Identifier: Apache-2.0
// Lists what travels through a comm's collectives, in place or packed: the same on every rank.
#pragma once

#include <span>
#include <vector>

#include "base/checked.h"
#include "comm/comm.h"
#include "step/memory.h"

namespace zero::travel {

/// One transfer, and the copies for it: into the buffer that is sent, out of the one that is
/// received.
struct Travel {
  Transfer transfer;
  bool in_place = false;
  bool by_owner = false;  // each rank's part by itself, none padded to the longest
  std::vector<launch::Move> pack{}, unpack{};
};

/// Return the transfers of a step, in the order of travel: those of gradients, and those of
/// parameters. They leave out transfers for which no rank has any gradient, because nothing in them
/// changes.
std::vector<Travel> reductions(const Optimizer& optim, const StepMemory& memory);
std::vector<Travel> gathers(const Optimizer& optim, const StepMemory& memory);

/// Returns copies of this rank's own gradients to the place of its sums, as if they were the sums.
std::vector<SectionMove> own_gradients(const Optimizer& optim, const StepMemory& memory);

/// Bytes of the buffers for all transfers: to sum in, to send packed data from, to receive it in.
struct Room {
  size_t summed = 0, sent = 0, received = 0;
};
Room room_for(const Optimizer& optim, const StepMemory& memory);

/// Returns the segments of every place, in order.
std::vector<std::vector<Segment>> all_segments(const Optimizer& optim);

/// Calls part(chunk position, segment) for the parts of `transfer` that are in `segments`.
template <class Part>
void for_each_part(const Transfer& transfer, const std::vector<Segment>& segments,
                   const Part& part) {
  for (const Segment& segment : Plan::within(segments, transfer.share, transfer.chunk)) {
    part(segment.share - transfer.share, segment);
  }
}

/// Returns the address `elements` behind `from`; null stays null.
template <class Byte>
Byte* moved(Byte* from, int64_t elements, DType dtype) {
  return from == nullptr ? nullptr : from + size_of(dtype, elements);
}

inline const Section& section_of(const Optimizer& optim, const Transfer& transfer) {
  return optim.plan.section(transfer.section);
}

/// Returns the type in which a section's gradients travel. If libzero does not sum them itself, it
/// is the type of sums, though values are rounded.
DType wire(const Optimizer& optim, const Section& section);

/// True if gradients travel as they are, where they are.
bool reduces_in_place(const Optimizer& optim, const StepMemory& memory);

/// True if parameters are gathered in place. That publishes all that lies between them, too, so the
/// step must change all parameters.
bool publishes_in_place(const Optimizer& optim, const StepMemory& memory);

/// True if a transfer is better sent by owner, where that can be done: for whole tensors in place
/// if padding to the longest owner's part would be an eighth of the transfer or more. That costs
/// more than the better ways that equal parts have.
bool goes_by_owner(const Optimizer& optim, const Travel& travel);

/// Calls part(rank, layout position, elements) for each rank's part of a transfer by owner.
template <class Part>
void for_each_owner(const Optimizer& optim, const Transfer& transfer, const Part& part) {
  for (int32_t rank = 0; rank < optim.places(); rank++) {
    const int64_t count = optim.plan.share_elements(static_cast<size_t>(transfer.section), rank);
    if (count > 0) part(rank, transfer.layout + rank * transfer.chunk, count);
  }
}

// ---- Ranks that keep copies of a share sum a part of it each, and bring the parts together.

/// Returns the elements of a part, the last of which may be shorter.
inline int64_t part_elements(const Transfer& transfer, int64_t copies) {
  return copies == 1 ? transfer.chunk
                     : round_up((transfer.chunk + copies - 1) / copies, kAlignment);
}
inline int64_t part_elements(const Optimizer& optim, const Transfer& transfer) {
  return part_elements(transfer, optim.options.instances);
}
/// Returns the part that ranks of an instance sum.
Transfer part_of(const Optimizer& optim, const Transfer& transfer, int32_t instance);

/// Return for how many ranks, the first, a transfer of gradients has something, and from how many
/// places one of parameters. Padding counts if the comm carries it.
int32_t summing_ranks(const Optimizer& optim, const Transfer& transfer);
int32_t sending_places(const Optimizer& optim, const Transfer& transfer);

/// Return the bytes of what they sum of a transfer, and of what they send.
size_t summed_bytes(const Optimizer& optim, const Transfer& transfer, DType dtype);
size_t gathered_bytes(const Optimizer& optim, const Transfer& transfer, DType dtype);

/// Counts the least that a transfer reads and writes: this rank's buffer once out and once in.
void count_moved(Optimizer& optim, const Travel& travel, DType dtype);

// ---- The host's way, transfer by transfer. It packs what does not lie as the plan lays it out.

/// Reduce-scatters gradients to arriving_sums().
Status reduce(Call& call, Optimizer& optim, StepMemory& memory);
/// All-gathers the owned parameters.
Status publish(Call& call, Optimizer& optim, StepMemory& memory);

// ---- Arenas that travel as they lie, which a backend may have mapped on other ranks.

/// The places of a layout on some ranks.
struct Places {
  Same<Location> place;
  uint64_t mapped = 0;  // 1: an arena of theirs is

  void add(const Places& other) {
    place.add(other.place);
    mapped |= other.mapped;
  }
};
struct LayoutPlaces {
  Places grads, data;

  void add(const LayoutPlaces& other) {
    grads.add(other.grads);
    data.add(other.data);
  }
};
LayoutPlaces places_of(const Optimizer& optim, const StepMemory& memory);

/// Maps, once, the arenas that on all ranks hold a layout at the same place and can be mapped. A
/// layout that lies in a mapped arena, but not at the same place everywhere, travels
/// packed, because work in mapped memory looks for every rank's data at the place of its own.
Status use_arenas(const Call& call, const Optimizer& optim, StepMemory& memory,
                  const LayoutPlaces& all);

}  // namespace zero::travel
