// SPDX-License-Identifier: Apache-2.0
// Lists the transfers of a step through a comm's collectives, in place or packed. The list is the
// same on every rank.
#pragma once

#include <span>
#include <vector>

#include "base/checked.h"
#include "comm/comm.h"
#include "step/memory.h"

namespace zero::travel {

/// One transfer, and its copies into the send buffer and out of the receive buffer.
struct Travel {
  Transfer transfer;
  bool in_place = false;
  bool by_owner = false;  // each rank's part is sent separately, without padding
  std::vector<launch::Move> pack{}, unpack{};
};

/// Return the transfers of gradients, and those of parameters, in the order in which a step runs
/// them. Leave out transfers for which no rank has any gradient, because nothing in them changes.
std::vector<Travel> reductions(const Optimizer& optim, const StepMemory& memory);
std::vector<Travel> gathers(const Optimizer& optim, const StepMemory& memory);

/// Returns copies of this rank's own gradients to arriving_sums(), as if they were the sums.
std::vector<SectionMove> own_gradients(const Optimizer& optim, const StepMemory& memory);

/// Bytes of the buffers in which transfers are summed, sent and received.
struct Room {
  size_t summed = 0, sent = 0, received = 0;
};
Room room_for(const Optimizer& optim, const StepMemory& memory);

/// Returns the segments that each place owns.
std::vector<std::vector<Segment>> all_segments(const Optimizer& optim);

/// Calls part(position in the chunk, segment) for the parts of `transfer` in `segments`.
template <class Part>
void for_each_part(const Transfer& transfer, const std::vector<Segment>& segments,
                   const Part& part) {
  for (const Segment& segment : Plan::within(segments, transfer.share, transfer.chunk)) {
    part(segment.share - transfer.share, segment);
  }
}

/// Returns the address `elements` elements after `from`, or null if `from` is null.
template <class Byte>
Byte* moved(Byte* from, int64_t elements, DType dtype) {
  return from == nullptr ? nullptr : from + size_of(dtype, elements);
}

inline const Section& section_of(const Optimizer& optim, const Transfer& transfer) {
  return optim.plan.section(transfer.section);
}

/// Returns the type in which the gradients of a section are sent. If libzero does not sum them
/// itself, this is the type of sums, even if the values are rounded.
DType wire(const Optimizer& optim, const Section& section);

/// Returns true if gradients are sent in place and without conversion.
bool reduces_in_place(const Optimizer& optim, const StepMemory& memory);

/// Returns true if parameters are gathered in place. This also sends everything between them, so
/// the step must change all parameters.
bool publishes_in_place(const Optimizer& optim, const StepMemory& memory);

/// Returns true if sending a transfer by owner is better, on comms that can do so. This holds for
/// whole tensors in place if padding to the longest owner's part would be an eighth of the transfer
/// or more. Such padding costs more than the faster paths for equal parts save.
bool goes_by_owner(const Optimizer& optim, const Travel& travel);

/// Calls part(rank, layout position, elements) for each rank's part of a transfer by owner.
template <class Part>
void for_each_owner(const Optimizer& optim, const Transfer& transfer, const Part& part) {
  for (int32_t rank = 0; rank < optim.places(); rank++) {
    const int64_t count = optim.plan.share_elements(static_cast<size_t>(transfer.section), rank);
    if (count > 0) part(rank, transfer.layout + rank * transfer.chunk, count);
  }
}

// ---- Instances. Each of the ranks that keep copies of a share sums a part of it. Then they
// exchange the parts.

/// Returns the number of elements in a part. The last part may be shorter.
inline int64_t part_elements(const Transfer& transfer, int64_t copies) {
  return copies == 1 ? transfer.chunk
                     : round_up((transfer.chunk + copies - 1) / copies, kAlignment);
}
inline int64_t part_elements(const Optimizer& optim, const Transfer& transfer) {
  return part_elements(transfer, optim.options.instances);
}
/// Returns the part of a transfer that the ranks of an instance sum.
Transfer part_of(const Optimizer& optim, const Transfer& transfer, int32_t instance);

/// Return the number of ranks for which a transfer of gradients has data, and the number of places
/// from which a transfer of parameters has data. They are the first ones. Padding counts if the
/// comm sends it.
int32_t summing_ranks(const Optimizer& optim, const Transfer& transfer);
int32_t sending_places(const Optimizer& optim, const Transfer& transfer);

/// Return the bytes of a transfer of gradients, and of a transfer of parameters.
size_t summed_bytes(const Optimizer& optim, const Transfer& transfer, DType dtype);
size_t gathered_bytes(const Optimizer& optim, const Transfer& transfer, DType dtype);

/// Counts the minimum that a transfer must read and write, which is this rank's buffer once each.
void count_moved(Optimizer& optim, const Travel& travel, DType dtype);

// ---- Transfers on the host. Tensors that are not laid out as in the plan are packed.

/// Reduce-scatters gradients to arriving_sums().
Status reduce(Call& call, Optimizer& optim, StepMemory& memory);
/// All-gathers the owned parameters.
Status publish(Call& call, Optimizer& optim, StepMemory& memory);

// ---- Arenas that are sent in place. A backend can map them on other ranks.

/// The locations of a layout on several ranks.
struct Places {
  Same<Location> place;
  uint64_t mapped = 0;  // 1 if an arena of these is mapped

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

/// Maps the arenas that hold a layout at the same location on all ranks and can be mapped, unless
/// they have been mapped before. A layout in a mapped arena whose location differs between ranks is
/// sent packed, because a rank that works in mapped memory expects the data of every rank at the
/// location of its own.
Status use_arenas(const Call& call, const Optimizer& optim, StepMemory& memory,
                  const LayoutPlaces& all);

}  // namespace zero::travel
