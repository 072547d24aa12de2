// SPDX-License-Identifier: Apache-2.0
// Takes steps with an update rule of the caller.
#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/float_environment.h"
#include "base/os.h"
#include "base/text.h"
#include "step/apply.h"
#include "step/reduce.h"
#include "step/tiles.h"

namespace zero {
namespace {

constexpr size_t kZoneBytes = 64;
constexpr int kZoneByte = 0xFD;
constexpr size_t kMessageBytes = 1024;

/// Returns true if the caller's function updates a view.
bool is_shadowed(const Optimizer& optim, const View& view) {
  return view.cls >= 0 && is_custom(optim.rule_of(view.segment));
}

size_t slots_of(const Optimizer& optim, const View& view) {
  return optim.rule_of(view.segment).slots.size();
}

/// Returns the size of an array with a guard zone on either side, rounded so that the next array is
/// aligned.
size_t room(size_t bytes) { return round_up(bytes, kZoneBytes) + 2 * kZoneBytes; }

/// A view with a gradient: the present state, and copies of it for one call of the function.
struct ShadowRange {
  const View& view;
  const Section& section;
  Targets::Row targets;
  std::byte* kept;
  size_t count, bytes;
  std::byte* values;
  std::span<std::byte* const> slots;
};

size_t bytes_of(const Optimizer& optim, const View& view) {
  const Section& section = optim.plan.section(view.segment.section);
  return size_of(section.sum(), view.segment.count);
}

/// Calls use(range) for each such view until use() returns false.
template <class Use>
void for_each_range(const Optimizer& optim, const StepMemory& memory, const Use& use) {
  std::byte* const* arrays = memory.shadow.arrays.data();
  for (size_t v = 0; v < memory.views.size(); v++) {
    const View& view = memory.views[v];
    if (!is_shadowed(optim, view)) continue;
    const size_t slots = slots_of(optim, view);
    if (!use(ShadowRange{.view = view,
                         .section = optim.plan.section(view.segment.section),
                         .targets = memory.targets[v],
                         .kept = optim.slot(kMasterSlot, view.segment),
                         .count = static_cast<size_t>(view.segment.count),
                         .bytes = bytes_of(optim, view),
                         .values = arrays[0],
                         .slots = {arrays + 1, slots}}))
      return;
    arrays += 1 + slots;
  }
}

/// One array that is passed to the function, with its guard zones.
struct Guarded {
  const char* name;
  std::byte* data;
  size_t bytes;

  void mark() const {
    std::memset(data - kZoneBytes, kZoneByte, kZoneBytes);
    std::memset(data + bytes, kZoneByte, kZoneBytes);
  }
  /// Returns where the function wrote outside the array, or nullptr if it did not.
  const char* fault() const {
    const auto broken = [](const std::byte* zone) {
      return std::any_of(zone, zone + kZoneBytes,
                         [](std::byte one) { return one != std::byte{kZoneByte}; });
    };
    if (broken(data - kZoneBytes)) return "before the start of";
    return broken(data + bytes) ? "past the end of" : nullptr;
  }
};

template <class Visit>
void for_each_array(const Optimizer& optim, const Shadow& shadow, const ShadowRange& range,
                    const Visit& visit) {
  visit(Guarded{"message", shadow.message, kMessageBytes});
  visit(Guarded{"gradient", shadow.gradient, range.bytes});
  visit(Guarded{"values", range.values, range.bytes});
  for (size_t slot = 0; slot < range.slots.size(); slot++)
    visit(Guarded{optim.rule_of(range.section).slots[slot], range.slots[slot], range.bytes});
}

void fill(const Optimizer& optim, const Shadow& shadow, const ShadowRange& range) {
  for_each_array(optim, shadow, range, [](const Guarded& array) { array.mark(); });
  std::memset(shadow.message, 0, kMessageBytes);
  const std::byte* const values =
      load_master(optim, range.section, range.targets[0], range.kept, range.values, range.count);
  if (values != range.values) std::memcpy(range.values, values, range.bytes);
  for (size_t slot = 0; slot < range.slots.size(); slot++)
    std::memcpy(range.slots[slot], optim.slot(static_cast<int>(slot), range.view.segment),
                range.bytes);
  scale_sums(range.section.sum(), shadow.gradient, range.view.reduced, range.count,
             optim.state.factor);
}

/// Calls the function with the copies.
Status update(const Optimizer& optim, const Shadow& shadow, const ShadowRange& range) {
  const auto& [number, first, count, share, section] = range.view.segment;
  const auto index = static_cast<size_t>(number);
  const auto settings = optim.settings_of(index);
  const CustomRule& rule = optim.custom_of(optim.params[index]);
  const UpdateRange given{.param = number,
                          .name = optim.params[index].name.c_str(),
                          .shape = optim.params[index].shape,
                          .dtype = range.section.sum(),
                          .first = first,
                          .count = count,
                          .values = range.values,
                          .gradient = shadow.gradient,
                          .slots = range.slots,
                          .step = optim.progress[index].step + 1,
                          .settings = std::span(settings).first(rule.rule().settings.size()),
                          .message = {reinterpret_cast<char*>(shadow.message), kMessageBytes}};
  Status status;
  {
    const FloatEnvironment environment;  // its destructor undoes changes by the function
    status = rule.update(given);
  }
  for_each_array(optim, shadow, range, [&](const Guarded& array) {
    const char* const where = status.ok() ? array.fault() : nullptr;
    if (where != nullptr)
      status = {ZERO_ERR_CALLBACK, text(rule.rule().name, " wrote ", where, " '", array.name,
                                        "', which has ", array.bytes, " bytes")};
  });
  if (status.ok()) return {};
  return std::move(status).within(text("parameter '", given.name, "', the update of elements ",
                                       first, " to ", first + count - 1));
}

}  // namespace

Status make_shadow(Optimizer& optim, StepMemory& memory) {
  Shadow& shadow = memory.shadow;
  size_t longest = 0, total = 0;
  for (const View& view : memory.views) {
    if (!is_shadowed(optim, view)) continue;
    longest = std::max(longest, bytes_of(optim, view));
    total += (1 + slots_of(optim, view)) * room(bytes_of(optim, view));
  }
  total += room(kMessageBytes) + room(longest);
  if (shadow.memory.bytes() < total) {
    shadow.memory = ZERO_TRY(HostMemory::allocate(total, "copies for a custom update"));
    optim.counters.shadow_bytes = static_cast<int64_t>(total);
  }
  std::byte* at = shadow.memory.data();
  const auto take = [&at](size_t bytes) {
    std::byte* const data = at + kZoneBytes;
    at += room(bytes);
    return data;
  };
  shadow.message = take(kMessageBytes);
  shadow.gradient = take(longest);
  shadow.arrays.clear();
  for (const View& view : memory.views) {
    for (size_t i = 0; is_shadowed(optim, view) && i <= slots_of(optim, view); i++)
      shadow.arrays.push_back(take(bytes_of(optim, view)));
  }
  return {};
}

Status update_shadow(Call& call, Optimizer& optim, StepMemory& memory) {
  Status status;
  {
    const TimedSpan watch(optim.comm->trace, "update", optim.counters.apply_seconds);
    os().reached("update.begin");
    for_each_range(optim, memory, [&](const ShadowRange& range) {
      fill(optim, memory.shadow, range);
      status = update(optim, memory.shadow, range);
      call.progress();
      return status.ok() && !call.comm().aborted();
    });
  }
  const TimedSpan watch(optim.comm->trace, "vote", optim.counters.vote_seconds);
  os().reached("update.done");
  Status agreed = call.vote("update", status);
  os().reached("update.voted");
  if (!agreed.ok()) optim.phase = Phase::open;  // sums may have replaced the caller's gradients
  return agreed;
}

void store_shadow(Optimizer& optim, const StepMemory& memory) {
  for_each_range(optim, memory, [&](const ShadowRange& range) {
    const Master master = optim.master_of(range.section);
    std::byte* const own = range.targets[0];
    if (master == Master::param) std::memcpy(own, range.values, range.bytes);
    if (master == Master::full) std::memcpy(range.kept, range.values, range.bytes);
    store_master(optim, range.section, own, range.kept, range.values, range.count);
    for (size_t slot = 0; slot < range.slots.size(); slot++)
      std::memcpy(optim.slot(static_cast<int>(slot), range.view.segment), range.slots[slot],
                  range.bytes);
    copy_to_others(range.targets, 0, range.count * size_of(range.section.dtype));
    // Counts copying the arrays to the shadow and back, and copying the gradient.
    optim.counters.moved_bytes +=
        static_cast<int64_t>(4 * (1 + range.slots.size()) * range.bytes + 2 * range.bytes);
    return true;
  });
}

}  // namespace zero
