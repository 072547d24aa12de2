// SPDX-License-Identifier: Apache-2.0
#include "step/enter.h"

#include <algorithm>
#include <type_traits>

#include "base/os.h"
#include "base/refusals.h"
#include "optim/tensor_checks.h"
#include "step/backward.h"
#include "step/queued/queue.h"
#include "step/seal.h"
#include "step/tables.h"
#include "step/take.h"
#include "step/travel.h"

namespace zero {
namespace {

/// One rank's part of the entry vote.
struct EntryRecord {
  uint64_t registered = 0;  // parameters and buffers
  uint64_t sealed = 0;
  uint64_t version = 0;
  uint64_t round = 0;  // of announcements
  Phase phase = Phase::open;
  bool all_present = false;
  bool wants_staging = false, wants_outbox = false;
  bool grads_in_place = false, data_in_place = false, shares_grads = false;
  uint64_t frozen = 0;  // hash of what is frozen
  Digest agreed{};      // of settings, step and arguments
  Saving::Word saving = Saving::Word::none;
  Layouts layouts;  // of what travels in place
};
static_assert(std::has_unique_object_representations_v<EntryRecord>);  // no padding travels

Status check_bound(const Optimizer& optim) {
  for (const Param& param : optim.params) {
    if (param.count > 0 && param.data == nullptr)
      return wrong_state("parameter '", param.name,
                         "' has no memory yet: zero_bind_params comes first");
  }
  return Status();
}

/// Checks that a parameter's product and its steps belong together, because zero_state_set sets one
/// at a time.
Status check_products(const Optimizer& optim) {
  if (optim.options.rule->next_product == nullptr) return Status();
  for (const auto& [param, slots] : optim.state_sets) {
    const auto& [step, live, unused, product] = optim.progress[static_cast<size_t>(param)];
    if ((step > 0) == (product != 1)) continue;
    return wrong_state("parameter '", optim.param(param).name, "' was set to step ", step,
                       " with mu_product ", product,
                       ": set both, the product is 1 before the first step only");
  }
  return Status();
}

Status check_arenas(const Optimizer& optim) {
  const auto check = [&](const TensorName& what, const std::byte* memory, size_t bytes) -> Status {
    if (memory == nullptr || bytes == 0) return Status();
    const std::shared_ptr<Arena> arena = find_arena(memory, bytes, optim.comm.get(), nullptr);
    if (arena == nullptr || !arena->comm()->aborted()) return Status();
    return wrong_state(
        what, " lies in an arena of an aborted comm: a stopped rank may still write there");
  };
  for (const Param& param : optim.params) {
    ZERO_TRY(check({"parameter", param.name}, param.data, param.bytes()));
    ZERO_TRY(check({kGradientOf, param.name}, param.grad, param.grad_bytes()));
  }
  for (const Buffer& buffer : optim.buffers)
    ZERO_TRY(check({"buffer", buffer.name}, buffer.data, buffer.bytes()));
  return Status();
}

/// Allocates sums on all ranks or on none, because whether there is room must be the same
/// everywhere.
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

/// Finds out which rank has which gradient, if some are missing. What is frozen is agreed upon
/// already.
Status agree_presence(Call& call, const Optimizer& optim, StepMemory& memory, bool all_present) {
  memory.presence.clear();
  memory.present.clear();
  if (optim.frozen() == optim.params.size())
    return wrong_state("every parameter is frozen: there is nothing to train");
  if (all_present) {
    if (optim.frozen() > 0) memory.present = optim.trainable();
    return Status();
  }
  std::string bits((optim.params.size() + 7) / 8, '\0');
  for (size_t i = 0; i < optim.params.size(); i++) {
    if (memory.grads[i] != nullptr) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << i % 8);
  }
  std::vector<std::string> all = ZERO_TRY(call.gather("presence", bits));
  memory.present.assign(optim.params.size(), false);
  bool any = false;
  for (const std::string& rank : all) {
    if (rank.size() != bits.size())
      return call.abort(Status(ZERO_ERR_DESYNC, "presence bits differ in size"), "presence");
    for (size_t i = 0; i < optim.params.size(); i++) {
      if ((static_cast<unsigned char>(rank[i / 8]) >> i % 8 & 1) == 0) continue;
      memory.present[i] = true;
      any = true;
    }
  }
  memory.presence = std::move(all);
  if (!any) return wrong_state("no rank has a gradient for any parameter");
  return Status();
}

/// Adds the parameters for which an earlier call had a gradient.
void add_presence(StepMemory& memory, const std::vector<bool>& before) {
  if (before.empty()) memory.present.clear();
  for (size_t i = 0; i < memory.present.size(); i++)
    memory.present[i] = memory.present[i] || before[i];
}

void note_placements(const StepMemory& memory, EntryRecord& record) {
  record.version = memory.version;
  record.grads_in_place = memory.grads_base != nullptr;
  record.data_in_place = memory.data_base != nullptr;
  record.shares_grads = memory.shares_grads;
  record.layouts = memory.layouts;
}

const char* phase_name(Phase phase) {
  return phase == Phase::reduced ? "reduced" : phase == Phase::begun ? "a step has begun" : "open";
}

/// Returns false if the call's gradients lack staging. Forgets gradients of an earlier call if
/// theirs is gone.
bool place_call(Optimizer& optim, StepMemory& memory, const Entry& entry) {
  if (place(optim, memory)) return true;
  if (entry.grads || entry.begins) return false;
  forget_grads(optim, memory);
  return place(optim, memory);
}

/// Writes placements before the vote, so that one exchange does it all in the steady state. Returns
/// false if something is lacking that only all ranks together can make.
bool place_early(Optimizer& optim, StepMemory& memory, const Entry& entry) {
  if (!optim.sealed() || !place_call(optim, memory, entry)) return false;
  const bool shares = optim.comm->direct() && optim.world() > 1;
  return !shares || memory.foreign_data.empty() || memory.outbox_used;
}

/// Returns this rank's part of the vote. `lines` must be the same on every rank.
EntryRecord record_of(Optimizer& optim, StepMemory& memory, const Entry& entry,
                      const std::string& lines) {
  EntryRecord record;
  record.registered = optim.params.size() + optim.buffers.size();
  record.sealed = optim.sealed_params() + optim.sealed_buffers();
  record.phase = optim.agreed_phase();
  record.frozen = optim.frozen_hash();
  record.agreed = hash128(bytes_of(lines));
  if (entry.local.ok() && place_early(optim, memory, entry)) {
    note_placements(memory, record);
  } else if (entry.local.ok()) {
    record.wants_staging = (entry.grads || entry.begins) && wants_staging(optim, memory);
    record.wants_outbox = wants_outbox(optim, memory);
  }
  record.version = memory.version;
  record.round = memory.round;
  record.all_present = !entry.grads || memory.all_present;
  if (optim.saving != nullptr) record.saving = optim.saving->word();
  return record;
}

/// True if every sum has room where a gradient was.
bool sums_fit_gradients(const Optimizer& optim) {
  return std::ranges::all_of(optim.plan.sections(), [](const Section& one) {
    return one.grad_dtype == one.sum() || !is_floating(one.dtype);
  });
}

/// Makes what is lacking, together with all ranks. After that every rank's placements can be read.
Status place_late(Call& call, Optimizer& optim, StepMemory& memory, const Entry& entry,
                  EntryRecord& mine, std::vector<EntryRecord>& all) {
  if (std::ranges::any_of(all, &EntryRecord::wants_staging))
    ZERO_TRY(allocate_arena(call, optim, optim.plan.end().grad_bytes, memory.staging));
  if (std::ranges::any_of(all, &EntryRecord::wants_outbox)) {
    ZERO_TRY(allocate_arena(call, optim, optim.plan.end().owned_bytes, memory.outbox));
    memory.outbox_used = true;
    drop_views(memory);
  }
  Status placed;
  if (!place_call(optim, memory, entry)) placed = Status(ZERO_ERR_INTERNAL, "staging is missing");
  note_placements(memory, mine);
  all = ZERO_TRY(call.vote("placements", placed, mine));
  return Status();
}

/// Agrees on the latest round. Each rank drops announcements when it likes, so this one may have
/// summed what others took back.
void agree_round(StepMemory& memory, std::span<const EntryRecord> all) {
  for (const EntryRecord& record : all) {
    if (record.round == memory.round) continue;
    if (memory.backward != nullptr) memory.backward->distrust();
    memory.round = std::max(memory.round, record.round);
  }
}

/// Keeps what the walks ask for of the records.
Status adopt(const Call& call, const Optimizer& optim, StepMemory& memory,
             std::span<const EntryRecord> all) {
  memory.grads_in_place = std::ranges::all_of(all, &EntryRecord::grads_in_place);
  memory.data_in_place = std::ranges::all_of(all, &EntryRecord::data_in_place);
  memory.grads_shared = std::ranges::count(all, true, &EntryRecord::shares_grads) > 1;
  memory.versions.clear();
  std::vector<Layouts> layouts;
  for (const EntryRecord& record : all) {
    memory.versions.push_back(record.version);
    layouts.push_back(record.layouts);
  }
  return travel::use_arenas(call, optim, memory, layouts);
}

/// Keeps what the call may change in other places than a step does.
void keep_for(Operation operation, const Optimizer& optim) {
  constexpr Operation kChange[] = {Operation::load, Operation::broadcast_params,
                                   Operation::share_params, Operation::rebalance};
  if (std::ranges::find(kChange, operation) != std::end(kChange)) optim.keep_all();
}

/// Tells a save that was begun how far all ranks are.
Status hear_of_save(Call& call, const Optimizer& optim, std::span<const EntryRecord> all) {
  if (optim.saving == nullptr) return Status();
  std::vector<Saving::Word> words;
  for (const EntryRecord& record : all) words.push_back(record.saving);
  return optim.saving->hear(call, words);
}

/// Finds out who has which gradient of the call, and makes room for sums that cannot stand where
/// gradients do.
Status enter_grads(Call& call, Optimizer& optim, StepMemory& memory, const Entry& entry,
                   bool all_present) {
  memory.grads_in_place = memory.grads_in_place && all_present;
  const std::vector<bool> before = memory.present;
  if (Status present = agree_presence(call, optim, memory, all_present); !present.ok()) {
    // A step that has begun is given up if no gradient comes.
    if (optim.phase == Phase::begun && !optim.comm->aborted()) give_up_begun(optim, memory);
    return present;
  }
  if (memory.adds) add_presence(memory, before);
  const bool alone = reduces_alone(optim, memory);
  const bool needs_reduced =
      !optim.comm->direct() || !all_present || memory.accumulates ||
      (alone && (entry.keeps || writes_directions(optim))) ||
      (entry.sums &&
       (!sums_fit_gradients(optim) || (optim.world() == 1 && optim.options.wire != DType::none)));
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
  const std::string lines = optim.agreed_lines() + entry.args + optim.state_set_lines();
  EntryRecord mine = record_of(optim, memory, entry, lines);
  std::vector<EntryRecord> all = ZERO_TRY(call.vote("enter", entry.local, mine));
  os().reached("enter.voted");
  agree_round(memory, all);
  ZERO_TRY(hear_of_save(call, optim, all));
  keep_for(call.operation(), optim);

  const bool all_present = std::ranges::all_of(all, &EntryRecord::all_present);
  const bool unsealed = std::ranges::any_of(all, [&](const EntryRecord& one) {
    return one.sealed != one.registered || one.registered != all[0].registered;
  });
  const bool same = std::ranges::all_of(all, [&](const EntryRecord& one) {
    return one.phase == all[0].phase && one.frozen == all[0].frozen && one.agreed == all[0].agreed;
  });
  const bool lacking = std::ranges::any_of(
      all, [](const EntryRecord& one) { return one.wants_staging || one.wants_outbox; });
  if (unsealed) ZERO_TRY(seal(call, optim));
  if (!same) {
    ZERO_TRY(call.agree(
        "settings", "settings or arguments differ",
        text("phase ", phase_name(optim.agreed_phase()), "\n", optim.trainable_lines(), lines)));
  }
  optim.state_sets.clear();
  if (unsealed || lacking) ZERO_TRY(place_late(call, optim, memory, entry, mine, all));
  ZERO_TRY(adopt(call, optim, memory, all));
  return entry.grads ? enter_grads(call, optim, memory, entry, all_present) : Status();
}

Status refuse(Call& call, Optimizer& optim, Status why) {
  return enter(call, optim, {.local = std::move(why)});
}

}  // namespace zero
