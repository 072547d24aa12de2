// SPDX-License-Identifier: Apache-2.0
// The data that a step keeps between calls: the placements of all ranks, and the runs of elements
// to walk.
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

/// One parameter's memory on one rank, as the other ranks read it.
struct Placement {
  Location data;
  Location grad;  // its place in staging if the gradient is in no arena
  bool operator==(const Placement&) const = default;
};

/// The places of a rank's whole layouts, on a device whose comm could map their arenas on other
/// ranks. Arena 0: it could not.
struct Layouts {
  Location grads, data;
};

/// One parameter's gradient on one rank, final in `round`, in the table behind the placements.
/// Other ranks read it while it changes, so every word is atomic; `round` is written last.
struct Ready {
  uint64_t round;
  uint64_t arena;  // 0: absent
  uint64_t offset;
};

/// How far one rank is with the end of a step, in the table behind those, and atomic like them. In
/// the step of this `number`, everything from `share` of its share on is stored on every rank.
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
  int32_t cls;         // into StepMemory::classes; -1: no rank has a gradient
  std::byte* reduced;  // the place of its reduced gradient
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

/// Addresses of gradients: on direct comms those of all ranks, in rank order. A rank that reduces
/// alone has its own only. Null stands for zeros.
using Sources = Rows<const std::byte*>;
/// Addresses to store parameters to, this rank's own first. A null ends the row.
using Targets = Rows<std::byte*>;

/// Views that are neighbours in every memory, walked as one view that begins like the first of
/// them.
struct Run : View {
  bool gaps;    // has padding between parameters, whose content means nothing
  size_t view;  // the first view in it
};

/// Runs with their addresses, a row each.
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

/// The ranks' agreement in the entry of the latest call that uses gradients.
struct Agreed {
  uint64_t versions = 0;      // of all ranks' placements: another number if one is another
  std::vector<bool> present;  // on any rank, in any call that was added up; empty: all
  bool none = false;          // ZERO_REDUCE_NONE: each owner uses its own gradients only
  bool accumulates = false;   // ZERO_REDUCE_ACCUMULATE: sums stand where more can be added

  bool is_present(int64_t param) const {
    return present.empty() || present[static_cast<size_t>(param)];
  }
  bool operator==(const Agreed&) const = default;
};

/// All that views are made of: if any of it changes, views change.
struct ViewsKey {
  uint64_t addresses = 0;  // Optimizer::addresses; 0: they are to be made anew
  Agreed agreed;
  std::vector<std::byte*> grads;  // addresses of gradients that no other rank reads
  bool in_place = false, early = false;
  bool operator==(const ViewsKey&) const = default;
};

/// The agreement, and the places of its data. They are kept together, so that a call that adds to
/// sums can be undone.
struct StepLayout : Agreed {
  bool adds = false;  // the call adds to sums of earlier calls
  bool outbox_used = false;
  bool grads_in_place = false, data_in_place = false;  // collective transfers need no packing
  bool grads_shared = false;  // several ranks have some in memory of one copy for all
  bool params_alike = false;  // those in such memory are the same, at the same place, on all ranks

  // Derived from the above.
  ViewsKey made_of;
  uint64_t views_number = 0;  // number of these views, for code that makes something of them
  std::vector<View> views;
  std::vector<int64_t> classes;  // of parameters that share their scalars: any one of each
  Sources sources;               // a row for each view; so have targets
  Targets targets;
  Runs runs;
  std::vector<SectionMove> pulls;  // copy parameters in no arena once their owners updated them
  std::vector<int64_t> cut;        // for trust ratios: parameters of more than one owner
};

/// Copies that a custom rule works on until the ranks agree to keep them. Each array has a zone on
/// either side, where nothing may be written.
struct Shadow {
  HostMemory memory;
  std::byte* message = nullptr;
  std::byte* gradient = nullptr;   // of the range at hand
  std::vector<std::byte*> arrays;  // of each view with a gradient, in order: values, then slots
};

/// This rank's gradients of the call.
struct Gradients {
  std::vector<std::byte*> grads;      // null where absent, or where the parameter is frozen
  bool all_present = false;           // every parameter that is trained has one
  std::vector<void*> given;           // as the call gave them; empty: the registered ones
  bool grads_announced = false;       // some may differ from those given
  uint64_t grads_from_addresses = 0;  // Optimizer::addresses when they were taken, 0: none were
  uint64_t grads_number = 0;          // another whenever they are taken or forgotten
};

/// All that placements are made of: if any of it changes, placements change.
struct PlacedKey {
  uint64_t addresses = 0;  // Optimizer::addresses; 0: they are to be made anew
  uint64_t grads = 0;      // Gradients::grads_number
  uint64_t staging = 0;    // number of its arena; 0: there is none
  bool none = false;       // Agreed::none
  bool operator==(const PlacedKey&) const = default;
};

/// The places of this rank's gradients and parameters.
struct Placed {
  PlacedKey placed_from;
  std::vector<Placement> placements;
  std::vector<int64_t> foreign_grads, foreign_data;
  bool shares_grads = false;  // some of its gradients lie in memory of one copy for all ranks
  uint64_t one_copy = 0;      // hash of the parameters there, and their places
  // Start of each layout, if all of it lies in an arena as the plan says.
  std::byte *grads_base = nullptr, *data_base = nullptr;
  Layouts layouts;                           // of these two
  std::vector<std::shared_ptr<Arena>> held;  // arenas in use stay mapped
};

/// Memory for transfers through collectives. On the host it is an arena, which ranks that share a
/// host may reach.
struct TravelRoom {
  std::shared_ptr<Arena> arena;
  Memory on_device;

  std::byte* data() const { return arena != nullptr ? arena->data() : on_device.data(); }
  size_t bytes() const { return arena != nullptr ? arena->bytes() : on_device.bytes(); }
};

struct StepMemory : StepLayout, Gradients, Placed {
  StepMemory();
  ~StepMemory();

  // Arenas of libzero's own, on direct comms of more than one rank.
  std::shared_ptr<Arena> tables;   // every rank's placements
  std::shared_ptr<Arena> staging;  // gradients that are in no arena, at layout positions
  std::shared_ptr<Arena> outbox;  // owned parameters, by share, for ranks whose own are in no arena
  std::shared_ptr<Arena> records;  // records of all ranks, if streams wait at gates

  // For buffers.
  std::vector<Location> buffer_places;  // on direct comms: of each buffer on every rank
  std::unique_ptr<std::byte[]> batch;   // room to pack some

  Memory reduced;   // sums of this rank's share, if they are not in place
  Memory incoming;  // sums to add to them, if adds_apart()
  TravelRoom send, receive, scratch;
  Shadow shadow;

  std::unique_ptr<Backward> backward;    // null until the engine announces a gradient
  Background* background = nullptr;      // ends steps, with overlap_gather
  uint64_t views_made = 0;               // so far
  std::shared_ptr<queued::Queue> queue;  // on devices with streams
  bool apart = false;                    // a class for each parameter: see queued::CapturedCall
  std::unique_ptr<Windows> windows;      // null until a call asks for them
  std::vector<uint64_t> agreed_numbers;  // room for those of an entry
  uint64_t round = 1;  // of announcements: the same on every rank, or they are not used

  bool ready = false;        // all ranks are, by the entry alone
  uint32_t slots_ready = 0;  // of the state, since the latest step that got ready
  uint64_t version = 0;      // of placements, as others read them
  uint64_t places_made = 0;  // so far; it grows with each Placed

  // The reduced gradients: valid in Phase::reduced and inside a step.
  NormSums found;           // by all ranks
  double norm_type = 0;     // p of the norm in `found`; 0: none
  bool clipped = false;     // clipping has changed the sums or their factor
  int32_t flags = 0;        // of the reduction
  uint64_t reduced_in = 0;  // the capture that it is part of; 0: none
};

StepMemory& step_memory(Optimizer& optim);

/// Forgets what make_views derived.
inline void drop_views(StepMemory& memory) { memory.made_of.addresses = 0; }

/// True if the directions of updates take the place of sums of gradients between two walks.
inline bool writes_directions(const Optimizer& optim) {
  return optim.options.rule->trust != nullptr && optim.options.rule->trust->of_update;
}

/// True if no rank reads the others' gradients.
inline bool reduces_alone(const Optimizer& optim, const StepMemory& memory) {
  return memory.none || optim.world() == 1;
}

/// True if ranks that keep copies of this one's share read its gradients where their sums would
/// stand.
inline bool is_read_elsewhere(const Optimizer& optim, const StepMemory& memory) {
  return optim.options.instances > 1 && !memory.none;
}

/// True if a call's gradients are not summed right onto the sums of earlier calls: others sum them
/// first, in their order, or (ZERO_REDUCE_NONE) nothing is summed.
inline bool adds_apart(const Optimizer& optim, const StepMemory& memory) {
  const Comm& comm = *optim.comm;
  return memory.adds && !comm.direct() && (memory.none || !comm.sums_itself());
}

/// Returns the place where sums arrive that this rank does not make itself.
inline std::byte* arriving_sums(const Optimizer& optim, const StepMemory& memory) {
  return (adds_apart(optim, memory) ? memory.incoming : memory.reduced).data();
}

/// Returns how gradients are rounded before they are summed. Sums that were made already are not
/// rounded.
inline Rounding rounding(const Optimizer& optim, const StepMemory& memory, const Section& section) {
  return memory.none ? Rounding{} : optim.rounding_of(section);
}

// ---- How calls that wait read and write an optimizer's tensors on the host.

/// Two windows, because a master may stand in two places, which are seen together.
struct Windows {
  Window values, remainders;
};

/// Returns this optimizer's windows. The first call makes them; it alone can fail for lack of
/// memory.
Result<Windows*> windows_of(Optimizer& optim);

}  // namespace zero
