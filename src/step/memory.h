// SPDX-License-Identifier: Apache-2.0
// The data that steps keep between calls, such as placements of tensors and runs of elements to
// update.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/memory.h"
#include "device/window.h"
#include "kernels/launches.h"
#include "kernels/step_state.h"
#include "optim/optimizer.h"

namespace zero {

/// The locations of one parameter and its gradient on one rank, as published to the other ranks.
struct Placement {
  Location data;
  Location grad;  // in staging if the gradient is in no arena
  bool operator==(const Placement&) const = default;
};

/// The locations of a rank's whole layouts, on a device whose comm can map their arenas on other
/// ranks. The arena is 0 if it cannot.
struct Layouts {
  Location grads, data;
};

/// The location of one gradient on one rank, which is final in `round`. It follows the placements
/// in the table. Other ranks load it while it changes, so every word is atomic and `round` is
/// stored last.
struct Ready {
  uint64_t round;
  uint64_t arena;  // 0: absent
  uint64_t offset;
};

/// The progress of one rank with the end of step `number`: its share, from position `share` on, has
/// been stored on every rank. It follows the rows of Ready in the table. Its words are also atomic.
struct Stored {
  uint64_t number;
  uint64_t share;
};

class Backward;
class Background;
struct Windows;
namespace queued {
struct Queue;
}

/// A segment that this rank owns, with addresses.
struct View {
  Segment segment;
  int32_t cls;         // index in StepMemory::classes; -1: no rank has a gradient
  std::byte* reduced;  // where the reduced gradient is stored
};

/// Rows of addresses, each `width` long.
template <class Address>
struct Rows {
  using Row = std::span<const Address>;
  std::vector<Address> all;
  size_t width = 0;

  Row operator[](size_t row) const { return Row(all).subspan(row * width, width); }
  void add(Row row) { all.insert(all.end(), row.begin(), row.end()); }
};

/// Addresses of gradients. On direct comms, these are the gradients of all ranks, in rank order, or
/// only this rank's own if it reduces alone. Null stands for zeros.
using Sources = Rows<const std::byte*>;
/// Addresses to which parameters are stored. This rank's own address comes first. A null ends the
/// row.
using Targets = Rows<std::byte*>;

/// Consecutive views that are adjacent in every memory, so that they can be processed as one view.
/// The base is a copy of the first one with a larger count.
struct Run : View {
  bool gaps;    // contains padding between parameters, which may hold anything
  size_t view;  // index of the first view
};

/// Runs with a row of addresses for each.
struct Runs {
  std::vector<Run> runs;
  Sources sources;
  Targets targets;
  int64_t elements = 0;
};

/// Elements of a section that are copied.
struct SectionMove {
  int32_t section;
  launch::Move move;
};

/// What the ranks agreed on in the entry of the latest call that uses gradients.
struct Agreed {
  uint64_t versions = 0;      // changes if the placements of any rank change
  std::vector<bool> present;  // some rank had the gradient in an accumulated call; empty: all
  bool none = false;          // ZERO_REDUCE_NONE: each owner uses only its own gradients
  bool accumulates = false;   // ZERO_REDUCE_ACCUMULATE: sums are stored where more can be added

  bool is_present(int64_t param) const {
    return present.empty() || present[static_cast<size_t>(param)];
  }
  bool operator==(const Agreed&) const = default;
};

/// Everything that views depend on. If any of it changes, they are made again.
struct ViewsKey {
  uint64_t addresses = 0;  // Optimizer::addresses; 0: views are out of date
  Agreed agreed;
  std::vector<std::byte*> grads;  // addresses of gradients that no other rank reads
  bool in_place = false, early = false;
  bool operator==(const ViewsKey&) const = default;
};

/// The agreement, and the locations of the data. They are kept together so that Rollback can
/// restore them when a call that adds to sums fails.
struct StepLayout : Agreed {
  bool adds = false;  // the call adds to sums of earlier calls
  bool outbox_used = false;
  bool grads_in_place = false, data_in_place = false;  // collective transfers need no packing
  bool grads_shared = false;  // several ranks have gradients in memory with one copy for all ranks
  bool params_alike = false;  // all ranks have the same parameters there, at the same locations

  // Derived from the above.
  ViewsKey made_of;
  uint64_t views_number = 0;  // identifies these views for code that derives data from them
  std::vector<View> views;
  std::vector<int64_t> classes;  // one parameter for each set of parameters with equal scalars
  Sources sources;               // one row for each view
  Targets targets;               // one row for each view
  Runs runs;
  std::vector<SectionMove> pulls;  // copies of updated parameters in no arena from their owners
  std::vector<int64_t> cut;        // for trust ratios: parameters with more than one owner
};

/// Copies that a custom rule updates before the ranks agree to keep them. Each array has a guard
/// zone on either side.
struct Shadow {
  HostMemory memory;
  std::byte* message = nullptr;
  std::byte* gradient = nullptr;   // of the current range
  std::vector<std::byte*> arrays;  // values and then slots of each view with a gradient, in order
};

/// This rank's gradients in the call.
struct Gradients {
  std::vector<std::byte*> grads;      // null if absent, or if the parameter is frozen
  bool all_present = false;           // every trained parameter has a gradient
  std::vector<void*> given;           // as passed to the call; empty: the registered ones
  bool grads_announced = false;       // some may differ from `given`
  uint64_t grads_from_addresses = 0;  // Optimizer::addresses when they were taken; 0: none were
  uint64_t grads_number = 0;          // changes whenever they are taken or forgotten
};

/// Everything that placements depend on. If any of it changes, they are made again.
struct PlacedKey {
  uint64_t addresses = 0;  // Optimizer::addresses; 0: placements are out of date
  uint64_t grads = 0;      // Gradients::grads_number
  uint64_t staging = 0;    // number of the staging arena; 0: there is none
  bool none = false;       // Agreed::none
  bool operator==(const PlacedKey&) const = default;
};

/// The locations of this rank's gradients and parameters.
struct Placed {
  PlacedKey placed_from;
  std::vector<Placement> placements;
  std::vector<int64_t> foreign_grads, foreign_data;  // parameters whose tensor is in no arena
  bool shares_grads = false;  // some gradients are in memory with one copy for all ranks
  uint64_t one_copy = 0;      // hash of the parameters in such memory and their locations
  // Start of each layout, if all of it is in one arena with the offsets of the plan.
  std::byte *grads_base = nullptr, *data_base = nullptr;
  Layouts layouts;                           // locations of grads_base and data_base
  std::vector<std::shared_ptr<Arena>> held;  // arenas in use, kept mapped
};

/// Memory for transfers through collectives. On the host it is an arena, which other ranks on the
/// host can access.
struct TravelRoom {
  std::shared_ptr<Arena> arena;
  Memory on_device;

  std::byte* data() const { return arena != nullptr ? arena->data() : on_device.data(); }
  size_t bytes() const { return arena != nullptr ? arena->bytes() : on_device.bytes(); }
};

struct StepMemory : StepLayout, Gradients, Placed {
  StepMemory();
  ~StepMemory();

  // Arenas that libzero allocates for its own use on direct comms with several ranks.
  std::shared_ptr<Arena> tables;   // placements, one table for each rank
  std::shared_ptr<Arena> staging;  // gradients that are in no arena, at layout positions
  std::shared_ptr<Arena> outbox;   // owned parameters, by share, for ranks with them in no arena
  std::shared_ptr<Arena> records;  // records of all ranks, if streams wait at gates

  // For buffers.
  std::vector<Location> buffer_places;  // on direct comms: location of each buffer on every rank
  std::unique_ptr<std::byte[]> batch;   // memory in which small buffers are packed

  Memory reduced;   // sums of this rank's share, unless they are stored in place of gradients
  Memory incoming;  // sums that are added to the sums of the share, if adds_apart()
  TravelRoom send, receive, scratch;
  Shadow shadow;

  std::unique_ptr<Backward> backward;    // null until the engine announces a gradient
  Background* background = nullptr;      // ends steps if overlap_gather is set; not owned
  uint64_t views_made = 0;               // so far
  std::shared_ptr<queued::Queue> queue;  // on devices with streams
  bool apart = false;                    // each parameter has a class: see queued::CapturedCall
  std::unique_ptr<Windows> windows;      // null until windows_of() is called
  std::vector<uint64_t> agreed_numbers;  // scratch memory for AgreedNumbers
  uint64_t round = 1;                    // number of the current round of announcements

  bool ready = false;        // all ranks became ready in the entry, without another vote
  uint64_t version = 0;      // changes with this rank's placements
  uint64_t places_made = 0;  // grows with each new Placed

  // The reduced gradients. Valid in Phase::reduced and inside a step.
  NormSums found;           // record of all ranks
  double norm_type = 0;     // p of the norm in `found`; 0: none
  bool clipped = false;     // clipping has changed the sums or their factor
  int32_t flags = 0;        // of the reduction
  uint64_t reduced_in = 0;  // the capture that contains the reduction; 0: none
};

StepMemory& step_memory(Optimizer& optim);

/// Marks views as out of date.
inline void drop_views(StepMemory& memory) { memory.made_of.addresses = 0; }

/// Returns true if the directions of a rule's updates replace the sums of gradients between two
/// walks.
inline bool writes_directions(const Rule& rule) { return has_trust(rule) && rule.trust->of_update; }
inline bool writes_directions(const Optimizer& optim) {
  return optim.any_rule([](const Rule& rule) { return writes_directions(rule); });
}

/// Returns true if no rank reads gradients of other ranks.
inline bool reduces_alone(const Optimizer& optim, const StepMemory& memory) {
  return memory.none || optim.world() == 1;
}

/// Returns true if ranks with copies of this rank's share read its gradients, so that sums must not
/// overwrite them.
inline bool is_read_elsewhere(const Optimizer& optim, const StepMemory& memory) {
  return optim.options.instances > 1 && !memory.none;
}

/// Returns true if the gradients of a call cannot be added directly to the sums of earlier calls,
/// because the backend sums them first, in its own order, or because ZERO_REDUCE_NONE sums nothing.
inline bool adds_apart(const Optimizer& optim, const StepMemory& memory) {
  const Comm& comm = *optim.comm;
  return memory.adds && !comm.direct() && (memory.none || !comm.sums_itself());
}

/// Returns where sums arrive that this rank does not compute itself.
inline std::byte* arriving_sums(const Optimizer& optim, const StepMemory& memory) {
  return (adds_apart(optim, memory) ? memory.incoming : memory.reduced).data();
}

/// Returns how gradients are rounded before they are summed.
inline Rounding rounding(const Optimizer& optim, const StepMemory& memory, const Section& section) {
  return memory.none ? Rounding{} : optim.rounding_of(section);
}

// ---- Access of the host to an optimizer's tensors, for calls that wait for it.

/// Two windows, because a master weight may be stored in two parts that are accessed together.
struct Windows {
  Window values, remainders;
};

/// Returns this optimizer's windows. The first call creates them. Only that call can fail for lack
/// of memory.
Result<Windows*> windows_of(Optimizer& optim);

}  // namespace zero
