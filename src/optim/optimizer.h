// SPDX-License-Identifier: Apache-2.0
// One rank's optimizer: its parameters, groups, plan, and share of the state. This class does not
// communicate. src/step and src/state use its data to do so.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/status.h"
#include "comm/comm.h"
#include "device/image.h"
#include "device/memory.h"
#include "device/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/step_state.h"
#include "optim/agreed.h"
#include "optim/master.h"
#include "optim/options.h"
#include "optim/saving.h"
#include "plan/plan.h"

namespace zero {

/// How gradients are rounded before they are summed. They are divided by `divisor` before they are
/// rounded, and their sum is multiplied by it.
struct Rounding {
  DType to = DType::none;  // none: not rounded
  float divisor = 1;       // a power of two
  bool any() const { return to != DType::none; }
};

/// Returns the type of the slots of a rule for parameters of this type.
constexpr DType slot_dtype(DType dtype, SlotFormat format) {
  return format == SlotFormat::bf16 ? DType::bf16 : sum_dtype(dtype);
}

/// Returns the bytes of one element in a slot of the rule, or 0 for types that cannot be trained.
constexpr size_t state_bytes_of(DType dtype, SlotFormat format = SlotFormat::full) {
  return is_floating(dtype) ? size_of(slot_dtype(dtype, format)) : 0;
}

/// The slot after those of the rule. It holds master weights or their remainders.
inline constexpr int kMasterSlot = kMaxStateSlots;
inline constexpr int kSlotCount = kMaxStateSlots + 1;
static_assert(kMaxStateSlots >= kMaxSlots);

/// Returns the name of a slot, such as "exp_avg" (as torch names it) or "master".
inline const char* slot_name(const Rule& rule, int slot) {
  return slot == kMasterSlot ? kMasterName : rule.slots[static_cast<size_t>(slot)];
}

/// Returns the slot with the given name, or -1 if there is none.
inline int find_slot(const Rule& rule, std::string_view name) {
  for (size_t slot = 0; slot < rule.slots.size(); slot++) {
    if (name == rule.slots[slot]) return static_cast<int>(slot);
  }
  return name == kMasterName ? kMasterSlot : -1;
}

/// A setting that the caller keeps in device memory. Each step reads its value there.
struct GivenSetting {
  const void* data;
  DType dtype;  // f32 or f64
};

struct Group {
  const Rule* rule = nullptr;
  std::shared_ptr<const CustomRule> custom = {};  // owns `rule`, if that is the caller's
  std::vector<double> settings = {};              // in the order of Rule::settings
  std::map<size_t, GivenSetting> given = {};  // by index; these replace the values in `settings`
  SlotFormat slot_format = SlotFormat::full;

  uint32_t slots_used() const { return rule->slots_used(settings); }
  /// Returns what distinguishes the rule from others. Functions that are declared alike are the
  /// same rule.
  std::string rule_line() const { return custom != nullptr ? custom->line() : rule->name; }
  /// Returns true if the rule needs whole tensors, which are then not split over ranks.
  bool whole_tensors() const { return custom != nullptr && custom->whole_tensors(); }
};

/// Returns the kind of each group, which is the number of the first group with the same rule, slots
/// and format of slots.
std::vector<int32_t> kinds_of(std::span<const Group> groups);

/// Returns a group with the default settings of a rule, which may be that of `custom`.
inline Group group_of(const Rule& rule, std::shared_ptr<const CustomRule> custom = nullptr) {
  Group group{.rule = &rule, .custom = std::move(custom)};
  for (const Setting& setting : rule.settings) group.settings.push_back(setting.initial);
  return group;
}

struct Param {
  std::string name;
  std::vector<int64_t> shape;
  int64_t count = 0;  // set by register_params, like `group`
  /// The position of its first element in the random bits that round its state. It depends only on
  /// the order of registration, in which positions fall, as parameters do on the grid.
  int64_t random_at = 0;
  int64_t order = 0;  // the parameter's number, unless ZERO_PARAM_ORDER is set
  int32_t owner = 0;
  int32_t flags = 0;
  int32_t group = 0;
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  double lr_scale = 1;
  std::optional<double> weight_decay = {};  // instead of the group's
  std::byte* data = nullptr;
  std::byte* grad = nullptr;

  std::byte* element(int64_t number) const { return data + size_of(dtype, number); }
  size_t bytes() const { return size_of(dtype, count); }
  size_t grad_bytes() const { return size_of(grad_dtype, count); }
};

/// A tensor of the model that is not trained, such as a running statistic or a counter.
struct Buffer {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
  std::byte* data = nullptr;
  int64_t count = 0;  // set by register_buffers

  size_t bytes() const { return size_of(dtype, count); }
};

/// This rank's state of one section. Each slot in `allocated` has an array of share_elements
/// elements. The others are empty.
struct SectionState {
  std::array<Memory, kSlotCount> slots;
  uint32_t allocated = 0;            // as bits
  std::vector<int32_t> groups = {};  // those that have parameters in the section
};

/// Named byte strings that the caller has set on one rank, to be saved.
using Extras = std::map<std::string, std::string, std::less<>>;
/// Views of one rank's extras in a block of memory.
using ExtraViews = std::map<std::string, std::string_view, std::less<>>;
/// The extras of all ranks that the latest load has read.
struct LoadedExtras {
  HostMemory files;
  std::map<int32_t, ExtraViews> by_rank;
};

enum class Phase : uint16_t { open, reducing, begun, reduced };

/// Seconds and bytes that zero_stats reports.
struct Counters {
  int64_t staging_bytes = 0, control_bytes = 0, copied_bytes = 0, moved_bytes = 0;
  int64_t shadow_bytes = 0;  // size of the copies that a custom rule works on
  int64_t host_waits = 0;    // waits of the host, inside calls, for streams of several ranks
  double gather_seconds = 0, vote_seconds = 0, apply_seconds = 0, publish_seconds = 0;
  double save_seconds = 0, load_seconds = 0;
};

/// A setting of a group or, with ZERO_ALL_GROUPS, of Optimizer::initial.
struct SettingPlace {
  int32_t group;
  size_t setting;
};

class Optimizer {
 public:
  Optimizer(std::shared_ptr<Comm> comm, const OptimizerOptions& options,
            std::vector<double> settings, std::unique_ptr<ThreadPool> pool);
  ~Optimizer();

  // ---- Registration. These calls are local. A call that fails changes nothing.
  Result<int32_t> register_params(Group group, std::span<const Param> added);
  Status register_buffers(std::span<const Buffer> added);
  Status bind(std::span<void* const> data, std::span<void* const> grads);
  Result<int64_t> find(std::string_view name) const;
  Status set(int32_t group, std::string_view name, double value);
  /// Makes the group (or all groups) read the setting from `given` from now on or, if its data is
  /// null, use the value that was set. Fails with ZERO_ERR_UNSUPPORTED if the host must know the
  /// setting.
  Status set_from(int32_t group, std::string_view name, const GivenSetting& given);
  Result<double> get(int32_t group, std::string_view name) const;
  Status set_trainable(int64_t param, bool trains);
  bool trains(size_t param) const { return trainable_[param]; }
  const std::vector<bool>& trainable() const { return trainable_; }
  size_t frozen() const { return frozen_; }
  /// Return the set of frozen parameters as a hash and as text lines. The set must be the same on
  /// every rank.
  uint64_t frozen_hash() const { return frozen_hash_; }
  std::string trainable_lines() const;
  /// Returns the settings with which a parameter is updated. These are the settings of its group,
  /// modified by the parameter's own settings. The latter affect neither the slots in use nor
  /// Rule::next_product.
  std::array<double, kMaxSettings> settings_of(size_t param) const;

  // ---- Checks that calls make before they do anything. Each succeeds if its comment is true.
  Status check_param(int64_t param) const;                          // the parameter exists
  Status check_params() const;                                      // parameters are registered
  Status check_owner(std::string_view param, int32_t owner) const;  // `owner` is a valid place
  Status check_open() const;    // no gradients are announced or reduced
  Status check_ended() const;   // there is no begun step that zero_step must still end
  Status check_loaded() const;  // no load failed halfway
  /// Fails with ZERO_ERR_UNSUPPORTED if the tensors are on a device, where `call` is not supported.
  Status check_host(std::string_view call) const;

  /// Returns true unless parameters or buffers were registered since the last seal.
  bool sealed() const {
    return sealed_params_ == params.size() && sealed_buffers_ == buffers.size();
  }
  size_t sealed_params() const { return sealed_params_; }
  size_t sealed_buffers() const { return sealed_buffers_; }

  /// A new assignment of elements to owners. It is prepared before anything changes, so a failure
  /// leaves the optimizer unchanged. A commit cannot fail. The new state is all zeros.
  struct Deal {
    Plan plan;
    std::vector<Segment> segments = {};
    std::vector<SectionState> state = {};
    std::vector<int32_t> owners = {};
  };
  /// Prepare and commit a seal, which adds sections.
  Result<Deal> prepare_seal() const;
  void commit_seal(Deal seal);
  /// Prepare and commit a new assignment of all elements, in which frozen parameters follow the
  /// others. `owners` has the new owners for the manual partition, or is empty to keep the present
  /// ones. The deal has no state if nothing moves.
  Result<Deal> prepare_deal(std::span<const int32_t> owners) const;
  void commit_deal(Deal deal);

  // ---- Rules. All parameters of a section follow the same rule.
  const Rule& rule_of(const Param& param) const {
    return *groups[static_cast<size_t>(param.group)].rule;
  }
  const Rule& rule_of(const Section& section) const {
    return *groups[static_cast<size_t>(section.kind)].rule;
  }
  const Rule& rule_of(const Segment& segment) const { return rule_of(param(segment.param)); }
  /// All slots of a section have the same format.
  SlotFormat slot_format(const Section& section) const {
    return groups[static_cast<size_t>(section.kind)].slot_format;
  }
  int64_t random_at(const Segment& segment) const {
    return param(segment.param).random_at + segment.first;
  }
  const CustomRule& custom_of(const Param& param) const {
    return *groups[static_cast<size_t>(param.group)].custom;
  }
  /// Returns true if test(rule) is true for the rule of any group.
  bool any_rule(const auto& test) const {
    return std::ranges::any_of(groups, [&](const Group& group) { return test(*group.rule); });
  }

  // ---- The share.
  /// Returns the address of `slot` at share position `share` of a section, or nullptr if no
  /// settings use the slot.
  std::byte* slot(int slot, int32_t section, int64_t share) const {
    return slot_in(plan, state_, slot, section, share);
  }
  std::byte* slot(int slot, const Segment& segment) const {
    return this->slot(slot, segment.section, segment.share);
  }
  /// Does the same for a share of another plan and its state.
  std::byte* slot_in(const Plan& of, std::span<const SectionState> state, int slot, int32_t section,
                     int64_t share) const;
  /// Returns the bytes of one element of a slot.
  size_t slot_size(int slot, const Section& section) const;
  Master master_of(const Section& section) const { return zero::master_of(section.dtype, options); }
  /// Returns the type to which parameters of a section are rounded, which may be their own type.
  DType shared(const Section& section) const { return shared_dtype(section.dtype, options); }
  bool has_masters() const;
  Rounding rounding_of(const Section& section) const {
    const bool travels_as_it_is = options.wire_dtype == 0 || section.grad_dtype == options.wire();
    if (travels_as_it_is || section.dtype == DType::f64) return {};
    return {options.wire(), static_cast<float>(options.predivide_factor)};
  }
  /// Sets the master weights of this rank's share, in the sections from `first_section` on, to the
  /// present values of the parameters.
  void take_masters(size_t first_section = 0);
  /// Returns the slots that the settings of a section's groups use, as bits.
  uint32_t slots_used(const Section& section) const;
  /// Returns true if all slots that settings use have memory.
  bool has_slots() const;
  /// Allocates memory for the slots that need it and have none. These are slots that settings use,
  /// for example because momentum was enabled later.
  Status allocate_slots();
  /// Does the same for the slots of one section that are in the bit mask `slots`.
  Status allocate_slots(const Section& section, uint32_t slots);
  /// Passes step count, loss scale and settings to `say`. They must be the same on every rank.
  void say_agreed(auto& say) const;
  /// Returns these values as text.
  std::string agreed_lines() const;
  /// Returns state_sets, with the progress of their parameters, as text.
  std::string state_set_lines() const;
  /// Returns the first parameter after those of a group.
  int64_t group_end(size_t group) const { return group_ends_[group]; }
  const std::vector<Segment>& segments() const { return segments_; }
  /// Returns the address of a segment's first value in this rank's parameter.
  std::byte* values(const Segment& segment) const {
    return param(segment.param).element(segment.first);
  }
  const Param& param(int64_t number) const { return params[static_cast<size_t>(number)]; }
  int32_t world() const { return comm->world(); }

  // ---- Instances. An instance is a group of consecutive ranks that together hold one copy of the
  // state. A rank's place is its number in its instance. Ranks with the same place own the same
  // elements. The owners in a plan are places, which equal the ranks of the first instance.
  int32_t places() const { return plan.options().world; }
  int32_t place_of(int32_t rank) const { return rank % places(); }
  int32_t place() const { return place_of(comm->rank()); }
  int32_t instance() const { return comm->rank() / places(); }
  /// Returns the rank with the given place in this rank's instance.
  int32_t rank_at(int32_t place) const { return instance() * places() + place; }
  /// Return the ranks in this rank's instance, and the ranks with its place.
  Ranks instance_ranks() const { return {instance() * places(), 1, places()}; }
  Ranks copies() const { return {place(), places(), options.instances}; }
  /// Returns what this rank contributes to a sum over all ranks: `found` in the first instance and
  /// an empty record in the others, so that each share is counted once.
  template <class Found>
  Found counted(const Found& found) const {
    return instance() == 0 ? found : Found();
  }

  int64_t state_bytes() const;

  std::shared_ptr<Comm> comm;
  const bool on_device;   // tensors are on a device: steps are queued, and end later than calls
  const uint32_t object;  // number of this optimizer on the comm
  OptimizerOptions options;
  Group initial;  // what new groups begin with, unless they have their own rule
  std::unique_ptr<ThreadPool> pool;
  std::vector<Group> groups;
  std::vector<Param> params;
  std::atomic<int64_t> registered{0};   // number of parameters; any thread may load it
  std::vector<ParamProgress> progress;  // by parameter
  std::vector<Buffer> buffers;
  /// Slots, as bits, that zero_state_set has changed since the last entry, by parameter. The next
  /// call compares them over the ranks, to detect a rank that has set something else.
  std::map<int64_t, uint32_t> state_sets;
  Plan plan;
  /// The number of parameters, from the first on, whose values are known to be the same on every
  /// rank.
  size_t alike_params = 0;

  Phase phase = Phase::open;
  bool not_loaded = false;  // a load failed halfway
  /// Returns true if gradients are announced one by one.
  bool announces() const { return phase == Phase::reducing || phase == Phase::begun; }
  /// Returns the phase that is compared over the ranks. Each rank announces gradients in its own
  /// time unless a step has begun, so `reducing` counts as `open`.
  Phase agreed_phase() const { return phase == Phase::reducing ? Phase::open : phase; }
  StepState state;           // steps taken and so on; on a device, as last read by the host
  Code last_step = ZERO_OK;  // outcome of the latest zero_step
  GivenSetting loss_scale_from = {nullptr, DType::f32};  // if set, the device reads the scale here
  int64_t queued_steps = 0;     // on a device: all steps queued so far, whatever their outcome
  double loss_scale_given = 1;  // the value that the caller set, without changes by steps
  LossScale loss_scale() const { return {state.loss_scale, state.good_steps}; }
  void set_loss_scale(const LossScale& now) {
    state.loss_scale = now.scale;
    state.good_steps = now.good_steps;
  }

  Extras extras;  // this rank's extras, which each save stores
  LoadedExtras loaded_extras;

  /// By rank, true if the rank had joined in the latest roll call. Empty if no rank has joined.
  std::vector<bool> joined;
  int32_t contributors;  // divisor of means; set when a reduction may begin

  Counters counters;

  /// Changes whenever an address or the set of frozen parameters changes, because src/step caches
  /// data derived from them.
  uint64_t addresses = 1;
  /// Changes whenever memory, owners, the set of frozen parameters or the address of a setting
  /// changes, because launches that were captured before then use old addresses.
  uint64_t layout = 1;

  HostMemory memory_of_copies;  // memory for copies that one save leaves to the next
  /// A save that has begun and was not waited for, and the image of what it still has to write.
  std::shared_ptr<Saving> saving;
  std::shared_ptr<Image> image;
  /// Must be called before parameters or state change.
  void keep(const std::byte* data, size_t bytes) const {
    if (image != nullptr) image->keep(data, bytes);
  }
  void keep_all() const {  // the memory may be freed afterwards
    if (image != nullptr) image->let_go();
  }

  /// The data that src/step keeps between calls, such as tables, staging and reduced gradients.
  std::shared_ptr<void> step_memory;

 private:
  struct Occupied {
    enum Kind { param, grad, buffer };
    uintptr_t end;
    int64_t index;  // of the parameter or buffer
    Kind kind;
  };
  Status add_param(const Param& added, const Group& group);
  Status check_own_setting(const Param& added, const Rule& rule, const char* name,
                           double value) const;
  void freeze(size_t param, bool frozen);
  void note_moved();
  Status check_memory_of(const Param& param) const;
  const Group& group_at(int32_t number) const {
    return number == ZERO_ALL_GROUPS ? initial : groups[static_cast<size_t>(number)];
  }
  Group& group_at(int32_t number) {
    return const_cast<Group&>(std::as_const(*this).group_at(number));
  }
  Result<std::vector<SettingPlace>> find_places(int32_t group, std::string_view name) const;
  Result<const Setting*> check_changeable(const SettingPlace& place) const;
  Status occupy(uintptr_t begin, const Occupied& what);
  Status occupy(const Param& param, int64_t index);
  std::vector<PlanParam> plan_params(size_t first) const;
  std::vector<SectionState> sections_of(const Plan& plan) const;
  uint32_t slots_used(const SectionState& state) const;
  Result<Memory> allocate_slot(int slot, const Plan& from, const Section& section) const;
  Status allocate(SectionState& state, uint32_t slots, const Plan& from,
                  const Section& section) const;
  Result<Deal> allocate_state(Plan from, size_t first_section) const;
  Status add_buffer(const Buffer& added);
  class Undo;
  void forget(size_t first_param, size_t first_buffer);
  void hold_arena(const std::byte* memory, int64_t count);
  bool is_used(const Arena& arena) const;
  void hold_arenas(size_t first_param, size_t first_buffer);

  std::unordered_map<std::string, int64_t> index_;
  std::set<std::string, std::less<>> buffer_names_;
  std::map<uintptr_t, Occupied>
      occupied_;  // memory of parameters, registered gradients and buffers, by address
  std::set<std::shared_ptr<Arena>> arenas_;  // arenas with registered memory, kept mapped
  std::vector<int64_t> group_ends_;          // see group_end()
  size_t sealed_params_ = 0, sealed_buffers_ = 0;
  std::vector<bool> trainable_;  // by parameter
  size_t frozen_ = 0;            // number of parameters that are not trained
  uint64_t frozen_hash_ = 0;
  std::vector<Segment> segments_;
  std::vector<SectionState> state_;  // by section
};

void Optimizer::say_agreed(auto& say) const {
  // On a device, queued steps are compared, because a rank knows the outcomes only if it has asked
  // for them.
  say("step ", on_device ? queued_steps : state.steps);
  if (!on_device)
    say("loss scale ", state.loss_scale, " after ", state.good_steps, " good steps");
  else if (loss_scale_from.data != nullptr)
    say("loss scale read from the device");
  else
    say("loss scale set to ", loss_scale_given);
  for (size_t g = 0; g < groups.size(); g++) {
    for (size_t s = 0; s < groups[g].settings.size(); s++) {
      const std::string_view name = groups[g].rule->settings[s].name;
      if (groups[g].given.count(s) != 0)
        say("group ", g, " ", name, " = read from the device");
      else
        say("group ", g, " ", name, " = ", groups[g].settings[s]);
    }
  }
}

}  // namespace zero
