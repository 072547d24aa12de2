// SPDX-License-Identifier: Apache-2.0
#include "step/enter.h"

#include <algorithm>
#include <type_traits>

#include "base/os.h"
#include "base/refusals.h"
#include "optim/tensor_checks.h"
#include "step/backward.h"
#include "step/one_copy.h"
#include "step/queued/queue.h"
#include "step/seal.h"
#include "step/tables.h"
#include "step/take.h"
#include "step/travel.h"
#include "step/views.h"

namespace zero {
namespace {

/// The record of one rank in the entry vote, or the combined record of several ranks.
struct EntryRecord {
  Same<uint64_t> registered;  // number of parameters and buffers
  Same<Digest> agreed;        // hash of what say_agreed() lists
  Same<uint64_t> one_copy;    // Placed::one_copy
  // Each flag is set if it is set for any rank.
  bool unsealed = false, lacks_grads = false;
  bool wants_staging = false, wants_outbox = false;
  bool packs_grads = false, packs_data = false;  // these are not laid out as in the plan
  bool unready = true;                           // something may still fail after the vote
  uint8_t share_grads = 0;  // ranks, at most 2, with gradients in memory with one copy
  uint64_t versions = 0;    // sum of hashes of the versions of placements
  uint64_t first_round = 0, last_round = 0;  // of announcements
  Saving::Words saving;
  travel::LayoutPlaces layouts;

  void add(const EntryRecord& other) {
    registered.add(other.registered);
    agreed.add(other.agreed);
    unsealed |= other.unsealed;
    lacks_grads |= other.lacks_grads;
    wants_staging |= other.wants_staging;
    wants_outbox |= other.wants_outbox;
    packs_grads |= other.packs_grads;
    packs_data |= other.packs_data;
    unready |= other.unready;
    share_grads = static_cast<uint8_t>(std::min(share_grads + other.share_grads, 2));
    one_copy.add(other.one_copy);
    versions += other.versions;
    first_round = std::min(first_round, other.first_round);
    last_round = std::max(last_round, other.last_round);
    saving.add(other.saving);
    layouts.add(other.layouts);
  }
};
static_assert(std::has_unique_object_representations_v<EntryRecord>);  // no padding is sent

Status check_bound(const Optimizer& optim) {
  for (const Param& param : optim.params) {
    if (param.count > 0 && param.data == nullptr)
      return wrong_state("parameter '", param.name,
                         "' has no memory yet: call zero_bind_params first");
  }
  return Status();
}

/// Checks that the product and the step count of each parameter are consistent, because
/// zero_state_set sets only one of them at a time.
Status check_products(const Optimizer& optim) {
  for (const auto& [param, slots] : optim.state_sets) {
    if (optim.rule_of(optim.param(param)).next_product == nullptr) continue;
    const auto& [step, live, unused, product] = optim.progress[static_cast<size_t>(param)];
    if ((step > 0) == (product != 1)) continue;
    return wrong_state("parameter '", optim.param(param).name, "' was set to step ", step,
                       " with mu_product ", product,
                       ": set both; the product is 1 only before the first step");
  }
  return Status();
}

Status check_arenas(const Optimizer& optim) {
  const auto check = [&](const TensorName& what, const std::byte* memory, size_t bytes) -> Status {
    if (memory == nullptr || bytes == 0) return Status();
    const std::shared_ptr<Arena> arena = find_arena(memory, bytes, optim.comm.get(), nullptr);
    if (arena == nullptr || !arena->comm()->aborted()) return Status();
    return wrong_state(what,
                       " is in an arena of an aborted comm: a stopped rank may still write there");
  };
  for (const Param& param : optim.params) {
    ZERO_TRY(check({"parameter", param.name}, param.data, param.bytes()));
    if (optim.options.instances > 1 &&
        in_one_copy(*optim.comm, optim.comm->locate(param.data, param.bytes())))
      return unsupported(
          "parameter '", param.name,
          "' is in a ZERO_MEMORY_SHARED arena, which has one copy for all ranks, but ", "each of ",
          optim.options.instances, " instances updates its own: use ZERO_MEMORY_PER_RANK");
    ZERO_TRY(check({kGradientOf, param.name}, param.grad, param.grad_bytes()));
  }
  for (const Buffer& buffer : optim.buffers)
    ZERO_TRY(check({"buffer", buffer.name}, buffer.data, buffer.bytes()));
  return Status();
}

/// Allocates memory for sums. Succeeds on all ranks or on none, because ranks with and without it
/// would continue differently.
Status allocate_sums(Call& call, const Optimizer& optim, StepMemory& memory, Memory& sums) {
  const auto bytes = static_cast<size_t>(optim.plan.end().sum_bytes);
  if (sums.bytes() >= bytes) return Status();
  const char* const what = "reduced gradients";
  Memory made = ZERO_TRY(call.vote(what, Memory::allocate(optim.comm->device(), bytes, what)));
  std::swap(sums, made);
  if (memory.queue != nullptr) memory.queue->retire(std::move(made));
  drop_views(memory);
  return Status();
}

Status allocate_arena(Call& call, Optimizer& optim, int64_t at_least,
                      std::shared_ptr<Arena>& arena) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(at_least, 64));
  if (arena != nullptr && arena->bytes() >= bytes) return Status();
  arena = ZERO_TRY(call.allocate(bytes, ZERO_MEMORY_PER_RANK));
  optim.counters.staging_bytes += static_cast<int64_t>(bytes);
  return Status();
}

/// One bit for each of 64 parameters, set if some rank has the gradient.
struct Presence {
  uint64_t bits = 0;
  void add(const Presence& other) { bits |= other.bits; }
};

/// Finds out which gradients any rank has, if some are missing. The ranks already agree on the
/// frozen parameters.
Status agree_presence(Call& call, const Optimizer& optim, StepMemory& memory, bool all_present) {
  memory.present.clear();
  if (optim.frozen() == optim.params.size())
    return wrong_state("every parameter is frozen: there is nothing to train");
  if (all_present) {
    if (optim.frozen() > 0) memory.present = optim.trainable();
    return Status();
  }
  std::vector<Presence> all((optim.params.size() + 63) / 64);
  for (size_t i = 0; i < optim.params.size(); i++)
    if (memory.grads[i] != nullptr) all[i / 64].bits |= uint64_t{1} << i % 64;
  ZERO_TRY(call.combine_each("presence", std::span(all)));
  for (size_t i = 0; i < optim.params.size(); i++)
    memory.present.push_back((all[i / 64].bits >> i % 64 & 1) != 0);
  if (std::ranges::find(memory.present, true) == memory.present.end())
    return wrong_state("no rank has a gradient for any parameter");
  return Status();
}

/// Adds the parameters for which an earlier accumulated call had a gradient.
void add_presence(StepMemory& memory, const std::vector<bool>& before) {
  if (before.empty()) memory.present.clear();
  for (size_t i = 0; i < memory.present.size(); i++)
    memory.present[i] = memory.present[i] || before[i];
}

void note_placements(const Optimizer& optim, const StepMemory& memory, EntryRecord& record) {
  const uint64_t version[] = {static_cast<uint64_t>(optim.comm->rank()), memory.version};
  record.versions = hash64(std::as_bytes(std::span(version)));
  record.packs_grads = memory.grads_base == nullptr;
  record.packs_data = memory.data_base == nullptr;
  record.share_grads = memory.shares_grads;
  record.one_copy = memory.one_copy;
  record.layouts = travel::places_of(optim, memory);
}

const char* phase_name(Phase phase) {
  return phase == Phase::reduced ? "reduced" : phase == Phase::begun ? "a step has begun" : "open";
}

/// Makes placements. Returns false if the gradients of the call need staging that is missing. If
/// gradients of an earlier call do, forgets those gradients instead.
bool place_call(Optimizer& optim, StepMemory& memory, const Entry& entry) {
  if (place(optim, memory)) return true;
  if (entry.grads || entry.begins) return false;
  forget_grads(optim, memory);
  return place(optim, memory);
}

/// Writes placements before the vote, so that a steady-state call needs only one exchange. Returns
/// false if something is missing that must be allocated collectively.
bool place_early(Optimizer& optim, StepMemory& memory, const Entry& entry) {
  if (!optim.sealed() || !place_call(optim, memory, entry)) return false;
  const bool shares = optim.comm->direct() && optim.world() > 1;
  return !shares || memory.foreign_data.empty() || memory.outbox_used;
}

/// Passes to `say` everything that must be the same on every rank of the call.
void say_agreed(const Optimizer& optim, const Entry& entry, auto& say) {
  say("phase ", std::string_view(phase_name(optim.agreed_phase())));
  say.lines(optim.frozen_hash(), [&] { return optim.trainable_lines(); });
  optim.say_agreed(say);
  say(std::string_view(entry.captured ? "a captured call" : "a call that is not captured"));
  if (entry.reduce_flags >= 0) say("reduce flags ", entry.reduce_flags);
  say.lines(entry.args);
  say.lines(optim.state_set_lines());
}

/// Returns this rank's record for the entry vote.
EntryRecord record_of(Optimizer& optim, StepMemory& memory, const Entry& entry) {
  EntryRecord record;
  record.registered = optim.params.size() + optim.buffers.size();
  record.unsealed = optim.sealed_params() + optim.sealed_buffers() != record.registered.value;
  AgreedNumbers agreed(memory.agreed_numbers);
  say_agreed(optim, entry, agreed);
  record.agreed = hash128(std::as_bytes(std::span(memory.agreed_numbers)));
  const bool placed = entry.local.ok() && place_early(optim, memory, entry);
  if (entry.local.ok() && !placed) {
    record.wants_staging = (entry.grads || entry.begins) && wants_staging(optim, memory);
    record.wants_outbox = wants_outbox(optim, memory);
  }
  record.unready = !placed || !entry.updates || !is_ready(optim, memory);
  note_placements(optim, memory, record);
  record.first_round = record.last_round = memory.round;
  record.lacks_grads = entry.grads && !memory.all_present;
  if (optim.saving != nullptr) record.saving = optim.saving->word();
  return record;
}

/// Returns true if every sum fits into the memory of its gradient.
bool sums_fit_gradients(const Optimizer& optim) {
  return std::ranges::all_of(optim.plan.sections(), [](const Section& one) {
    return one.grad_dtype == one.sum() || !is_floating(one.dtype);
  });
}

/// Allocates what is missing, together with all ranks. Then every rank's placements can be read.
Status place_late(Call& call, Optimizer& optim, StepMemory& memory, const Entry& entry,
                  EntryRecord& all) {
  if (all.wants_staging)
    ZERO_TRY(allocate_arena(call, optim, optim.plan.end().grad_bytes, memory.staging));
  if (all.wants_outbox) {
    ZERO_TRY(allocate_arena(call, optim, optim.plan.end().owned_bytes, memory.outbox));
    memory.outbox_used = true;
    drop_views(memory);
  }
  Status placed;
  if (!place_call(optim, memory, entry)) placed = Status(ZERO_ERR_INTERNAL, "staging is missing");
  EntryRecord mine;
  note_placements(optim, memory, mine);
  all = ZERO_TRY(call.vote("placements", placed, mine));
  return Status();
}

/// Returns true if a rank that is ready for a step has nothing more to do in it, because it owns
/// nothing. Returns false if the previous call was not ready, because this one may not be either.
bool ends_with_entry(const Optimizer& optim, const StepMemory& memory, const Entry& entry) {
  return memory.ready && entry.fused && memory.runs.elements == 0 && !memory.outbox_used &&
         !optim.any_rule(has_trust);
}

/// Adopts the latest round of any rank. Ranks drop announcements independently, so this rank may
/// have summed gradients that other ranks have withdrawn.
void agree_round(StepMemory& memory, const EntryRecord& all) {
  if (all.first_round == all.last_round) return;
  if (memory.backward != nullptr) memory.backward->distrust();
  memory.round = all.last_round;
}

/// Stores the results of the entry that the walks use.
Status adopt(const Call& call, const Optimizer& optim, StepMemory& memory, const EntryRecord& all) {
  memory.grads_in_place = !all.packs_grads;
  memory.data_in_place = !all.packs_data;
  memory.grads_shared = all.share_grads > 1;
  memory.params_alike = all.one_copy.differs == 0;
  memory.versions = all.versions;
  return travel::use_arenas(call, optim, memory, all.layouts);
}

/// Preserves everything for a save in progress if the call may change data that steps do not.
void keep_for(Operation operation, const Optimizer& optim) {
  constexpr Operation kChange[] = {Operation::load, Operation::broadcast_params,
                                   Operation::share_params, Operation::rebalance};
  if (std::ranges::find(kChange, operation) != std::end(kChange)) optim.keep_all();
}

/// Finds out which gradients exist, and allocates memory for sums that cannot be stored in place of
/// gradients.
Status enter_grads(Call& call, Optimizer& optim, StepMemory& memory, const Entry& entry,
                   bool all_present) {
  memory.grads_in_place = memory.grads_in_place && all_present;
  const std::vector<bool> before = memory.present;
  if (Status present = agree_presence(call, optim, memory, all_present); !present.ok()) {
    // If no rank has a gradient, a step that has begun is given up.
    if (optim.phase == Phase::begun && !optim.comm->aborted()) give_up_begun(optim, memory);
    return present;
  }
  if (memory.adds) add_presence(memory, before);
  const bool alone = reduces_alone(optim, memory);
  const bool needs_reduced =
      !optim.comm->direct() || !all_present || memory.accumulates ||
      (alone && (entry.keeps || writes_directions(optim))) ||
      (entry.sums && (!sums_fit_gradients(optim) || is_read_elsewhere(optim, memory) ||
                      (optim.world() == 1 && optim.options.wire_dtype != 0)));
  if (needs_reduced) ZERO_TRY(allocate_sums(call, optim, memory, memory.reduced));
  if (adds_apart(optim, memory)) ZERO_TRY(allocate_sums(call, optim, memory, memory.incoming));
  return Status();
}

}  // namespace

StepMemory::StepMemory() = default;
StepMemory::~StepMemory() {
  if (queue == nullptr || queue->await_end()) return;
  for (const auto* const arenas : {&held, &queue->leaving})
    for (const std::shared_ptr<Arena>& arena : *arenas) arena->stay();
  for (const std::shared_ptr<Arena>& arena : {staging, outbox, records})
    if (arena != nullptr) arena->stay();
  queue->device->give_up();
}

StepMemory& step_memory(Optimizer& optim) {
  if (optim.step_memory == nullptr) optim.step_memory = std::make_shared<StepMemory>();
  return *static_cast<StepMemory*>(optim.step_memory.get());
}

Status enter(Call& call, Optimizer& optim, Entry entry) {
  StepMemory& memory = step_memory(optim);
  os().reached("enter.begin");
  if (memory.backward != nullptr) memory.backward->pause();
  const bool moved = memory.placed_from.addresses != optim.addresses;
  if (entry.local.ok() && moved) entry.local = check_bound(optim);
  if (entry.local.ok() && moved) entry.local = check_arenas(optim);
  if (entry.local.ok()) entry.local = check_products(optim);
  const EntryRecord mine = record_of(optim, memory, entry);
  optim.comm->steps.deciding = entry.fused && !mine.unready;
  if (!mine.unready && ends_with_entry(optim, memory, entry)) call.come_ahead();
  EntryRecord all = ZERO_TRY(call.vote("enter", entry.local, mine));
  os().reached("enter.voted");
  memory.ready = !all.unready && all.agreed.differs == 0 && all.versions == memory.versions;
  if (!memory.ready) ZERO_TRY(call.skip_ahead());
  optim.comm->steps.deciding = memory.ready;
  agree_round(memory, all);
  if (optim.saving != nullptr) ZERO_TRY(optim.saving->hear(call, all.saving));
  keep_for(call.operation(), optim);

  const bool all_present = !all.lacks_grads;
  const bool unsealed = all.unsealed || all.registered.differs != 0;
  if (unsealed) ZERO_TRY(seal(call, optim));
  if (all.agreed.differs != 0) {
    AgreedLines agreed;
    say_agreed(optim, entry, agreed);
    ZERO_TRY(call.agree("settings", "settings or arguments differ", agreed.text));
  }
  optim.state_sets.clear();
  if (unsealed || all.wants_staging || all.wants_outbox)
    ZERO_TRY(place_late(call, optim, memory, entry, all));
  ZERO_TRY(adopt(call, optim, memory, all));
  if (memory.ready || !entry.grads) return Status();  // if ready, others may already be storing
  return enter_grads(call, optim, memory, entry, all_present);
}

Status refuse(Call& call, Optimizer& optim, Status why) {
  return enter(call, optim, {.local = std::move(why)});
}

}  // namespace zero
