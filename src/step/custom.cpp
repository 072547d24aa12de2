// SPDX-License-Identifier: Apache-2.0
#include "step/custom.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "base/float_environment.h"
#include "base/os.h"
#include "base/text.h"
#include "kernels/clamp.h"
#include "step/stopwatch.h"
#include "step/tiles.h"

namespace zero {
namespace {

constexpr size_t kZoneBytes = 64;
constexpr int kZoneByte = 0xFD;
constexpr size_t kMessageBytes = 1024;

size_t slots_of(const Optimizer& optim) { return optim.options.rule->slots.size(); }

/// An array with a zone on either side, and the next one is aligned again.
size_t room(size_t bytes) { return round_up(bytes, kZoneBytes) + 2 * kZoneBytes; }

size_t element_of(const Optimizer& optim, const View& view) {
  return size_of(optim.plan.section(view.segment.section).sum());
}

size_t bytes_of(const Optimizer& optim, const View& view) {
  return static_cast<size_t>(view.segment.count) * element_of(optim, view);
}

/// One array that the function gets.
struct Guarded {
  const char* name;
  std::byte* data;
  size_t bytes;

  void mark() const {
    std::memset(data - kZoneBytes, kZoneByte, kZoneBytes);
    std::memset(data + bytes, kZoneByte, kZoneBytes);
  }
  /// How the function broke it, or nullptr.
  const char* fault() const {
    const auto broken = [](const std::byte* zone) {
      return std::any_of(zone, zone + kZoneBytes,
                         [](std::byte one) { return one != std::byte{kZoneByte}; });
    };
    if (broken(data - kZoneBytes)) return "in front of";
    return broken(data + bytes) ? "behind" : nullptr;
  }
};

/// The state as it stands, and where it is kept.
struct Kept {
  const Section& section;
  std::byte* param;
  std::byte* master;

  Kept(const Optimizer& optim, const StepMemory& memory, size_t v)
      : section(optim.plan.section(memory.views[v].segment.section)),
        param(memory.view_targets[v * memory.target_width]),
        master(optim.slot(kMasterSlot, memory.views[v].segment.section,
                          memory.views[v].segment.share)) {}
};

std::byte* slot_of(const Optimizer& optim, const View& view, size_t slot) {
  return optim.slot(static_cast<int>(slot), view.segment.section, view.segment.share);
}

/// Copies of a range for one call, and the gradient.
class Range {
 public:
  Range(const Optimizer& optim, const StepMemory& memory, size_t v, std::byte* const* arrays)
      : optim_(optim), memory_(memory), view_(memory.views[v]), v_(v), values_(arrays[0]) {
    const size_t bytes = bytes_of(optim, view_);
    guarded_[count_++] = {"message", memory.shadow.message, kMessageBytes};
    guarded_[count_++] = {"gradient", memory.shadow.gradient, bytes};
    guarded_[count_++] = {"values", values_, bytes};
    for (size_t slot = 0; slot < slots_of(optim); slot++) {
      slots_[slot] = arrays[1 + slot];
      guarded_[count_++] = {optim.options.rule->slots[slot], slots_[slot], bytes};
    }
  }

  Status update(double factor) {
    fill(factor);
    const Param& param = optim_.params[static_cast<size_t>(view_.segment.param)];
    const auto settings = optim_.settings_of(static_cast<size_t>(view_.segment.param));
    const UpdateRange range{
        .param = view_.segment.param,
        .name = param.name.c_str(),
        .shape = param.shape,
        .dtype = optim_.plan.section(view_.segment.section).sum(),
        .first = view_.segment.first,
        .count = view_.segment.count,
        .values = values_,
        .gradient = memory_.shadow.gradient,
        .slots = std::span(slots_).first(slots_of(optim_)),
        .step = optim_.progress[static_cast<size_t>(view_.segment.param)].step + 1,
        .settings = std::span(settings).first(optim_.options.rule->settings.size()),
        .message = {reinterpret_cast<char*>(memory_.shadow.message), kMessageBytes}};
    Status status;
    {
      const FloatEnvironment environment;  // whatever the function leaves of it
      status = optim_.options.custom->update(range);
    }
    if (status.ok()) status = check_zones();
    if (status.ok()) return {};
    return std::move(status).within(text("parameter '", param.name, "', the update of elements ",
                                         range.first, " to ", range.first + range.count - 1));
  }

 private:
  void fill(double factor) {
    for (size_t i = 0; i < count_; i++) guarded_[i].mark();
    std::memset(memory_.shadow.message, 0, kMessageBytes);
    const auto count = static_cast<size_t>(view_.segment.count);
    const size_t bytes = bytes_of(optim_, view_);
    const Kept kept(optim_, memory_, v_);
    const std::byte* const values =
        load_master(optim_, kept.section, kept.param, kept.master, values_, count);
    if (values != values_) std::memcpy(values_, values, bytes);
    for (size_t slot = 0; slot < slots_of(optim_); slot++)
      std::memcpy(slots_[slot], slot_of(optim_, view_, slot), bytes);
    if (kept.section.sum() == DType::f64) {
      scale(reinterpret_cast<double*>(memory_.shadow.gradient),
            reinterpret_cast<const double*>(view_.reduced), count, factor);
    } else {
      scale(reinterpret_cast<float*>(memory_.shadow.gradient),
            reinterpret_cast<const float*>(view_.reduced), count, static_cast<float>(factor));
    }
  }

  Status check_zones() const {
    for (size_t i = 0; i < count_; i++) {
      const char* const where = guarded_[i].fault();
      if (where == nullptr) continue;
      return {ZERO_ERR_CALLBACK,
              text(optim_.options.rule->name, " wrote ", where, " '", guarded_[i].name,
                   "', which has ", guarded_[i].bytes, " bytes")};
    }
    return {};
  }

  const Optimizer& optim_;
  const StepMemory& memory_;
  const View& view_;
  const size_t v_;
  std::byte* const values_;
  std::array<std::byte*, kMaxStateSlots> slots_{};
  std::array<Guarded, 3 + kMaxStateSlots> guarded_{};
  size_t count_ = 0;
};

/// Call use(view, its arrays) for the views with a gradient; `use` says whether to go on.
template <class Use>
void for_each_range(const Optimizer& optim, const StepMemory& memory, const Use& use) {
  std::byte* const* arrays = memory.shadow.arrays.data();
  for (size_t v = 0; v < memory.views.size(); v++) {
    if (memory.views[v].cls < 0) continue;
    if (!use(v, arrays)) return;
    arrays += 1 + slots_of(optim);
  }
}

}  // namespace

Status make_shadow(Optimizer& optim, StepMemory& memory) {
  Shadow& shadow = memory.shadow;
  const size_t each = 1 + slots_of(optim);
  size_t longest = 0, total = 0;
  for (const View& view : memory.views) {
    if (view.cls < 0) continue;
    longest = std::max(longest, bytes_of(optim, view));
    total += each * room(bytes_of(optim, view));
  }
  total += room(kMessageBytes) + room(longest);
  if (shadow.memory.bytes() < total) {
    shadow.memory = ZERO_TRY(HostMemory::allocate(total, "the copies that an update works on"));
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
    for (size_t i = 0; view.cls >= 0 && i < each; i++)
      shadow.arrays.push_back(take(bytes_of(optim, view)));
  }
  return {};
}

Status update_shadow(Call& call, Optimizer& optim, StepMemory& memory, double factor) {
  Status status;
  {
    const Stopwatch watch(optim.counters.apply_seconds);
    os().reached("update.begin");
    for_each_range(optim, memory, [&](size_t v, std::byte* const* arrays) {
      status = Range(optim, memory, v, arrays).update(factor);
      call.progress();
      return status.ok() && !call.comm().aborted();
    });
  }
  const Stopwatch watch(optim.counters.vote_seconds);
  os().reached("update.done");
  Status agreed = call.vote("update", status);
  os().reached("update.voted");
  if (!agreed.ok()) optim.phase = Phase::open;  // sums may stand where the caller's gradients were
  return agreed;
}

void store_shadow(Optimizer& optim, const StepMemory& memory) {
  for_each_range(optim, memory, [&](size_t v, std::byte* const* arrays) {
    const View& view = memory.views[v];
    const auto count = static_cast<size_t>(view.segment.count);
    const size_t bytes = bytes_of(optim, view);
    const Kept kept(optim, memory, v);
    if (optim.master_of(kept.section) == Master::param) std::memcpy(kept.param, arrays[0], bytes);
    if (optim.master_of(kept.section) == Master::full) std::memcpy(kept.master, arrays[0], bytes);
    store_master(optim, kept.section, kept.param, kept.master, arrays[0], count);
    for (size_t slot = 0; slot < slots_of(optim); slot++)
      std::memcpy(slot_of(optim, view, slot), arrays[1 + slot], bytes);
    const size_t param_bytes = count * size_of(kept.section.dtype);
    std::byte* const* const targets = &memory.view_targets[v * memory.target_width];
    for (size_t i = 1; i < memory.target_width && targets[i] != nullptr; i++)
      std::memcpy(targets[i], targets[0], param_bytes);
    // Into the copies and back, and the gradient.
    optim.counters.moved_bytes +=
        static_cast<int64_t>(4 * (1 + slots_of(optim)) * bytes + 2 * bytes);
    return true;
  });
}

}  // namespace zero
