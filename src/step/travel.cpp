// SPDX-License-Identifier: Apache-2.0
#include "step/travel.h"

#include <algorithm>

namespace zero::travel {
namespace {

using Segments = std::vector<std::vector<Segment>>;

int64_t owned_elements(const Optimizer& optim, const Transfer& transfer) {
  int64_t owned = 0;
  for_each_owner(optim, transfer, [&](int32_t, int64_t, int64_t count) { owned += count; });
  return owned;
}

/// Returns the transfers that change something. Calls pack() to add copies to those that are not in
/// place.
template <class Pack>
std::vector<Travel> travels_of(const Optimizer& optim, const StepMemory& memory, bool in_place,
                               const Pack& pack) {
  // The segments of many ranks take more memory than the model.
  const bool needs_none = in_place && memory.present.empty();
  const Segments segments = needs_none ? Segments() : all_segments(optim);
  std::vector<Travel> all;
  for (const Transfer& transfer : optim.plan.transfers(in_place)) {
    bool changes = memory.present.empty();
    for (size_t place = 0; place < segments.size() && !changes; place++) {
      for_each_part(transfer, segments[place], [&](int64_t, const Segment& segment) {
        changes = changes || memory.is_present(segment.param);
      });
    }
    if (!changes) continue;
    all.push_back({transfer, in_place});
    if (!in_place) pack(all.back(), segments);
  }
  return all;
}

/// Adds copies of this rank's gradients to the send buffer, which has a part for each rank.
void pack_gradients(const Optimizer& optim, const StepMemory& memory, const Segments& segments,
                    Travel& travel) {
  const Section& section = section_of(optim, travel.transfer);
  std::byte* part = memory.send.data();
  for (int32_t rank = 0; rank < optim.world(); rank++) {
    const Transfer summed = part_of(optim, travel.transfer, rank / optim.places());
    const std::vector<Segment>& owned = segments[static_cast<size_t>(optim.place_of(rank))];
    for_each_part(summed, owned, [&](int64_t at, const Segment& segment) {
      const std::byte* const grad = memory.grads[static_cast<size_t>(segment.param)];
      if (grad == nullptr) return;
      travel.pack.push_back({moved(grad, segment.first, section.grad_dtype),
                             moved(part, at, wire(optim, section)), segment.count});
    });
    part = moved(part, part_elements(optim, travel.transfer), wire(optim, section));
  }
}

/// Adds copies of owned parameters to the send buffer, and copies of the other parameters from the
/// receive buffer.
void pack_params(const Optimizer& optim, const StepMemory& memory, const Segments& segments,
                 Travel& travel) {
  const DType shared = optim.shared(section_of(optim, travel.transfer));
  for (size_t place = 0; place < segments.size(); place++) {
    const bool own = place == static_cast<size_t>(optim.place());
    const int64_t chunk = own ? 0 : static_cast<int64_t>(place) * travel.transfer.chunk;
    for_each_part(travel.transfer, segments[place], [&](int64_t at, const Segment& segment) {
      if (!memory.is_present(segment.param)) return;
      std::byte* const values = optim.values(segment);
      std::byte* const buffer = own ? memory.send.data() : memory.receive.data();
      std::byte* const place = moved(buffer, chunk + at, shared);
      own ? travel.pack.push_back({values, place, segment.count})
          : travel.unpack.push_back({place, values, segment.count});
    });
  }
}

/// Maps the arena of a layout, or decides to pack. All ranks decide alike, because all have mapped
/// the same arenas.
Status use_arena(QueuedPlane& plane, Use use, const Places& all, bool may_map, bool& in_place) {
  if (!in_place) return Status();
  if (all.place.differs != 0) {
    in_place = all.mapped == 0;
    return Status();
  }
  const uint32_t arena = all.place.value.arena;
  if (arena == 0 || plane.was_mapped(arena) || !may_map) return Status();
  return plane.map_arena(use, all.place.value);
}

}  // namespace

std::vector<std::vector<Segment>> all_segments(const Optimizer& optim) {
  std::vector<std::vector<Segment>> all;
  for (int32_t place = 0; place < optim.places(); place++)
    all.push_back(optim.plan.segments(place));
  return all;
}

DType wire(const Optimizer& optim, const Section& section) {
  if (!optim.comm->sums_itself()) return section.sum();
  const Rounding rounding = optim.rounding_of(section);
  return rounding.any() ? rounding.to : section.grad_dtype;
}

bool reduces_in_place(const Optimizer& optim, const StepMemory& memory) {
  return memory.grads_in_place && optim.options.instances == 1 &&
         std::ranges::all_of(optim.plan.sections(), [&](const Section& section) {
           return wire(optim, section) == section.grad_dtype && !optim.rounding_of(section).any();
         });
}

bool goes_by_owner(const Optimizer& optim, const Travel& travel) {
  return travel.in_place && section_of(optim, travel.transfer).whole &&
         owned_elements(optim, travel.transfer) <= travel.transfer.chunk * optim.places() / 8 * 7;
}

Transfer part_of(const Optimizer& optim, const Transfer& transfer, int32_t instance) {
  Transfer part = transfer;
  part.chunk = std::min(part_elements(optim, transfer), transfer.chunk);
  const int64_t begin = std::min(instance * part.chunk, transfer.chunk);
  part.chunk = std::min(part.chunk, transfer.chunk - begin);
  part.share += begin;
  return part;
}

int32_t summing_ranks(const Optimizer& optim, const Transfer& transfer) {
  return optim.options.instances == 1 ? sending_places(optim, transfer) : optim.world();
}

int32_t sending_places(const Optimizer& optim, const Transfer& transfer) {
  return optim.comm->carries_padding() ? optim.places() : transfer.owners;
}

size_t summed_bytes(const Optimizer& optim, const Transfer& transfer, DType dtype) {
  return size_of(dtype, part_elements(optim, transfer) * summing_ranks(optim, transfer));
}

size_t gathered_bytes(const Optimizer& optim, const Transfer& transfer, DType dtype) {
  return size_of(dtype, transfer.chunk * sending_places(optim, transfer));
}

bool publishes_in_place(const Optimizer& optim, const StepMemory& memory) {
  return memory.data_in_place && memory.present.empty() &&
         std::ranges::all_of(optim.plan.sections(), [&](const Section& section) {
           return optim.shared(section) == section.dtype;
         });
}

std::vector<Travel> reductions(const Optimizer& optim, const StepMemory& memory) {
  const bool in_place = reduces_in_place(optim, memory);
  return travels_of(optim, memory, in_place, [&](Travel& travel, const Segments& segments) {
    pack_gradients(optim, memory, segments, travel);
  });
}

std::vector<Travel> gathers(const Optimizer& optim, const StepMemory& memory) {
  const bool in_place = publishes_in_place(optim, memory);
  return travels_of(optim, memory, in_place, [&](Travel& travel, const Segments& segments) {
    pack_params(optim, memory, segments, travel);
  });
}

std::vector<SectionMove> own_gradients(const Optimizer& optim, const StepMemory& memory) {
  std::vector<SectionMove> all;
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    if (!is_floating(section.dtype)) continue;
    const std::byte* const grad = memory.grads[static_cast<size_t>(segment.param)];
    all.push_back({segment.section,
                   {moved(grad, segment.first, section.grad_dtype),
                    arriving_sums(optim, memory) + section.sum_at(segment.share), segment.count}});
  }
  return all;
}

Room room_for(const Optimizer& optim, const StepMemory& memory) {
  Room room;
  const bool reduces = reduces_in_place(optim, memory);
  for (const Transfer& transfer : optim.plan.transfers(reduces)) {
    const Section& section = section_of(optim, transfer);
    room.summed = std::max(room.summed, summed_bytes(optim, transfer, wire(optim, section)));
    if (optim.options.instances == 1) continue;
    const int64_t copied = part_elements(optim, transfer) * optim.options.instances;
    room.received = std::max(room.received, size_of(section.sum(), copied));
    room.summed = std::max(room.summed, Comm::kGatherBytes * static_cast<size_t>(optim.world()));
  }
  if (!publishes_in_place(optim, memory)) {
    for (const Transfer& transfer : optim.plan.transfers(false)) {
      const DType dtype = optim.shared(section_of(optim, transfer));
      room.received = std::max(room.received, gathered_bytes(optim, transfer, dtype));
    }
  }
  room.sent = std::max(reduces ? 0 : room.summed, room.received);
  return room;
}

void count_moved(Optimizer& optim, const Travel& travel, DType dtype) {
  const int64_t elements = travel.by_owner
                               ? owned_elements(optim, travel.transfer)
                               : travel.transfer.chunk * sending_places(optim, travel.transfer);
  optim.counters.moved_bytes += 2 * static_cast<int64_t>(size_of(dtype, elements));
}

LayoutPlaces places_of(const Optimizer& optim, const StepMemory& memory) {
  const QueuedPlane* const plane = optim.comm->queued();
  if (plane == nullptr) return {};
  const auto& [grads, data] = memory.layouts;
  const auto places = [plane](const Location& at, bool mapped) {
    return Places{at, mapped || plane->was_mapped(at.arena) ? 1u : 0u};
  };
  // An arena that holds both layouts may be mapped for the gradients in this call.
  return {places(grads, false), places(data, data.arena != 0 && data.arena == grads.arena)};
}

Status use_arenas(const Call& call, const Optimizer& optim, StepMemory& memory,
                  const LayoutPlaces& all) {
  QueuedPlane* const plane = optim.comm->queued();
  if (plane == nullptr) return Status();
  const bool may_map = call.capture() == 0;  // memory cannot be mapped during a capture
  ZERO_TRY(use_arena(*plane, Use::reduce, all.grads, may_map, memory.grads_in_place));
  return use_arena(*plane, Use::gather, all.data, may_map, memory.data_in_place);
}

}  // namespace zero::travel
