// SPDX-License-Identifier: Apache-2.0
#include "step/enter.h"

#include <algorithm>
#include <cstring>

#include "base/os.h"
#include "base/text.h"
#include "step/backward.h"
#include "step/queued/in_place.h"
#include "step/queued/queue.h"
#include "step/seal.h"
#include "step/tables.h"
#include "step/views.h"

namespace zero {
namespace {

enum Flag : uint32_t {
  kAllPresent = 1,
  kWantsStaging = 2,
  kWantsOutbox = 4,
  kGradsInPlace = 8,
  kDataInPlace = 16,
  kSharesGrads = 32,
};

/// One rank's part of the entry vote.
struct EntryRecord {
  uint64_t registered = 0;  // parameters and buffers
  uint64_t sealed = 0;
  uint64_t version = 0;
  uint64_t round = 0;  // of announcements
  Phase phase = Phase::open;
  uint32_t flags = 0;
  uint64_t frozen = 0;  // hash of what is frozen
  Digest agreed{};      // of settings, step and arguments
  Layouts layouts;      // of what travels in place
};

Status check_bound(const Optimizer& optim) {
  for (const Param& param : optim.params) {
    if (param.count > 0 && param.data == nullptr) {
      return Status(ZERO_ERR_STATE, text("parameter '", param.name,
                                         "' has no memory yet: zero_bind_params comes first"));
    }
  }
  return Status();
}

/// A rule's product and its steps belong together; zero_state_set_scalar sets one at a time.
Status check_products(const Optimizer& optim) {
  if (optim.options.rule->next_product == nullptr) return Status();
  for (const auto& [param, slots] : optim.state_sets) {
    const auto& [step, live, unused, product] = optim.progress[static_cast<size_t>(param)];
    if ((step > 0) == (product != 1)) continue;
    return Status(ZERO_ERR_STATE, text("parameter '", optim.params[static_cast<size_t>(param)].name,
                                       "' was set to step ", step, " with mu_product ", product,
                                       ": set both, the product is 1 before the first step only"));
  }
  return Status();
}

Status check_arena(const Optimizer& optim, const char* kind, std::string_view name,
                   const std::byte* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) return Status();
  const std::shared_ptr<Arena> arena = find_arena(memory, bytes, optim.comm.get(), nullptr);
  if (arena == nullptr || !arena->comm()->aborted()) return Status();
  return Status(ZERO_ERR_STATE, text(kind, " '", name,
                                     "' lies in an arena of an aborted comm: a stopped rank may "
                                     "still write there"));
}

Status check_arenas(const Optimizer& optim) {
  for (const Param& param : optim.params) {
    ZERO_TRY(check_arena(optim, "parameter", param.name, param.data, param.bytes()));
    ZERO_TRY(check_arena(optim, "the gradient of parameter", param.name, param.grad,
                         param.grad_bytes()));
  }
  for (const Buffer& buffer : optim.buffers)
    ZERO_TRY(check_arena(optim, "buffer", buffer.name, buffer.data, buffer.bytes()));
  return Status();
}

/// On all ranks or on none: whether there is room must be the same everywhere.
Status allocate_sums(Call& call, const Optimizer& optim, StepMemory& memory, Memory& sums) {
  const auto bytes = static_cast<size_t>(optim.plan.sum_bytes());
  if (sums.bytes() >= bytes) return Status();
  Result<Memory> made = Memory::allocate(optim.comm->device(), bytes, "reduced gradients");
  ZERO_TRY(call.vote("reduced gradients", made.ok() ? Status() : made.failure()));
  std::swap(sums, *made);
  if (memory.queue != nullptr) memory.queue->retire(std::move(*made));
  drop_views(memory);
  return Status();
}

Status allocate_wanted(Call& call, Optimizer& optim, StepMemory& memory, uint32_t wanted) {
  const auto allocate = [&](int64_t at_least, std::shared_ptr<Arena>& arena) -> Status {
    const auto bytes = static_cast<size_t>(std::max<int64_t>(at_least, 64));
    if (arena != nullptr && arena->bytes() >= bytes) return Status();
    arena = ZERO_TRY(call.allocate(bytes, ZERO_MEMORY_PER_RANK));
    optim.counters.staging_bytes += static_cast<int64_t>(bytes);
    memory.placements.clear();
    return Status();
  };
  if ((wanted & kWantsStaging) != 0) {
    ZERO_TRY(allocate(optim.plan.grad_bytes(), memory.staging));
  }
  if ((wanted & kWantsOutbox) != 0) {
    ZERO_TRY(allocate(optim.plan.owned_bytes(), memory.outbox));
    memory.outbox_used = true;
    drop_views(memory);
  }
  return Status();
}

/// Gradients may be missing: find out who has which. What is frozen is agreed upon already.
Status agree_presence(Call& call, const Optimizer& optim, StepMemory& memory, bool all_present) {
  memory.presence.clear();
  memory.present.clear();
  if (optim.frozen() == optim.params.size())
    return Status(ZERO_ERR_STATE, "every parameter is frozen: there is nothing to train");
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
  if (!any) return Status(ZERO_ERR_STATE, "no rank has a gradient for any parameter");
  return Status();
}

/// A parameter has a gradient if a call before had one for it.
void add_presence(StepMemory& memory, const std::vector<bool>& before) {
  if (before.empty()) memory.present.clear();
  for (size_t i = 0; i < memory.present.size(); i++)
    memory.present[i] = memory.present[i] || before[i];
}

void note_in_place(const StepMemory& memory, EntryRecord& record) {
  record.flags |= (memory.grads_base != nullptr ? kGradsInPlace : 0u) |
                  (memory.data_base != nullptr ? kDataInPlace : 0u) |
                  (memory.shares_grads ? kSharesGrads : 0u);
  record.layouts = memory.layouts;
}

/// What holds on every rank.
uint32_t common_flags(std::span<const EntryRecord> all) {
  uint32_t flags = ~0u;
  for (const EntryRecord& record : all) flags &= record.flags;
  return flags;
}

/// Announcements are a rank's own, unless a step has begun.
Phase agreed_phase(const Optimizer& optim) {
  return optim.phase == Phase::reducing ? Phase::open : optim.phase;
}

const char* phase_name(Phase phase) {
  return phase == Phase::reduced ? "reduced" : phase == Phase::begun ? "a step has begun" : "open";
}

EntryRecord record_of(const Optimizer& optim, const StepMemory& memory, const Entry& entry,
                      const std::string& lines) {
  EntryRecord record;
  record.registered = optim.params.size() + optim.buffers.size();
  record.sealed = optim.sealed_params() + optim.sealed_buffers();
  record.version = memory.version;
  record.round = memory.round;
  record.phase = agreed_phase(optim);
  record.frozen = optim.frozen_hash();
  if (!entry.grads || memory.all_present) record.flags |= kAllPresent;
  record.agreed = hash128(bytes_of(lines));
  return record;
}

/// In the steady state placements are written before the vote, so that one exchange does it all.
/// False if something is lacking that only all ranks together can make.
bool place_early(Optimizer& optim, StepMemory& memory, const Entry& entry) {
  if (!optim.sealed()) return false;
  const bool shares = optim.comm->direct() && optim.world() > 1;
  if (!place(optim, memory)) return false;
  if (shares && !memory.foreign_data.empty() && !memory.outbox_used) return false;
  if (entry.grads) stage_grads(optim, memory);
  return true;
}

uint32_t wanted_flags(const Optimizer& optim, const StepMemory& memory, const Entry& entry) {
  const bool stages = entry.grads || entry.begins;
  return (stages && wants_staging(optim, memory) ? kWantsStaging : 0u) |
         (wants_outbox(optim, memory) ? kWantsOutbox : 0u);
}

/// What the records of all ranks say together.
struct Agreement {
  bool unsealed = false;
  bool all_present = true;
  bool same = true;  // phase, what is frozen, settings, arguments
  uint32_t wanted = 0;
};

Agreement compare(std::span<const EntryRecord> all) {
  Agreement agreement;
  for (const EntryRecord& record : all) {
    agreement.unsealed = agreement.unsealed || record.sealed != record.registered ||
                         record.registered != all[0].registered;
    agreement.all_present = agreement.all_present && (record.flags & kAllPresent) != 0;
    agreement.same = agreement.same && record.phase == all[0].phase &&
                     record.frozen == all[0].frozen && record.agreed == all[0].agreed;
    agreement.wanted |= record.flags & (kWantsStaging | kWantsOutbox);
  }
  return agreement;
}

/// True if every sum has room where a gradient was.
bool sums_fit_gradients(const Optimizer& optim) {
  const std::vector<Section>& sections = optim.plan.sections();
  return std::all_of(sections.begin(), sections.end(), [](const Section& one) {
    return one.grad_dtype == one.sum() || !is_floating(one.dtype);
  });
}

/// What was lacking is made by all ranks together, and then every rank's placements can be read.
Status place_late(Call& call, Optimizer& optim, StepMemory& memory, const Entry& entry,
                  uint32_t wanted, EntryRecord& mine, std::span<EntryRecord> all) {
  if (!entry.grads && !entry.begins)
    forget_grads(optim, memory);  // of a call before, whose staging may be gone
  ZERO_TRY(allocate_wanted(call, optim, memory, wanted));
  Status placed;
  if (!place(optim, memory)) placed = Status(ZERO_ERR_INTERNAL, "staging is missing");
  if (entry.grads) stage_grads(optim, memory);
  mine.version = memory.version;
  note_in_place(memory, mine);
  return call.vote("placements", placed, std::as_bytes(std::span(&mine, 1)),
                   std::as_writable_bytes(all));
}

/// Ranks that dropped announcements, each when it liked, may have summed what others took back.
void agree_round(StepMemory& memory, std::span<const EntryRecord> all) {
  for (const EntryRecord& record : all) {
    if (record.round == memory.round) continue;
    if (memory.backward != nullptr) memory.backward->distrust();
    memory.round = std::max(memory.round, record.round);
  }
}

/// Keep of the records what the walks ask for.
Status adopt(const Call& call, const Optimizer& optim, StepMemory& memory,
             std::span<const EntryRecord> all) {
  const uint32_t common = common_flags(all);
  memory.grads_in_place = (common & kGradsInPlace) != 0;
  memory.data_in_place = (common & kDataInPlace) != 0;
  memory.versions.clear();
  std::vector<Layouts> layouts;
  size_t sharing = 0;
  for (const EntryRecord& record : all) {
    sharing += (record.flags & kSharesGrads) != 0;
    memory.versions.push_back(record.version);
    layouts.push_back(record.layouts);
  }
  memory.grads_shared = sharing > 1;
  return queued::use_arenas(call, optim, memory, layouts);
}

}  // namespace

StepMemory& step_memory(Optimizer& optim) {
  if (optim.step_memory == nullptr) optim.step_memory = std::make_shared<StepMemory>();
  return *static_cast<StepMemory*>(optim.step_memory.get());
}

Status enter(Call& call, Optimizer& optim, StepMemory& memory, Entry entry) {
  os().reached("enter.begin");
  if (memory.backward != nullptr) memory.backward->pause();
  const bool moved = memory.data_addresses != optim.addresses;
  if (entry.local.ok() && moved) entry.local = check_bound(optim);
  if (entry.local.ok() && moved) entry.local = check_arenas(optim);
  if (entry.local.ok()) entry.local = check_products(optim);
  const std::string lines = optim.agreed_lines() + entry.args + optim.state_set_lines();
  const bool placed = entry.local.ok() && place_early(optim, memory, entry);
  EntryRecord mine = record_of(optim, memory, entry, lines);
  if (placed) {
    note_in_place(memory, mine);
  } else if (entry.local.ok()) {
    mine.flags |= wanted_flags(optim, memory, entry);
  }
  std::vector<EntryRecord> all(static_cast<size_t>(call.world()));
  ZERO_TRY(call.vote("enter", entry.local, std::as_bytes(std::span(&mine, 1)),
                     std::as_writable_bytes(std::span(all))));
  os().reached("enter.voted");
  agree_round(memory, all);

  const Agreement agreement = compare(all);
  if (agreement.unsealed) ZERO_TRY(seal(call, optim));
  if (!agreement.same) {
    ZERO_TRY(call.agree(
        "settings", "settings or arguments differ",
        text("phase ", phase_name(agreed_phase(optim)), "\n", optim.trainable_lines(), lines)));
  }
  optim.state_sets.clear();
  if (agreement.unsealed || agreement.wanted != 0) {
    ZERO_TRY(place_late(call, optim, memory, entry, agreement.wanted, mine, all));
  }
  ZERO_TRY(adopt(call, optim, memory, all));
  if (!entry.grads) return Status();
  memory.grads_in_place = memory.grads_in_place && agreement.all_present;
  const std::vector<bool> before = memory.present;
  if (Status present = agree_presence(call, optim, memory, agreement.all_present); !present.ok()) {
    // A step that began with no gradient to come was no step.
    if (optim.phase == Phase::begun && !optim.comm->aborted()) give_up_begun(optim, memory);
    return present;
  }
  if (entry.adds) add_presence(memory, before);
  const bool alone = reduces_alone(optim, memory);
  const bool needs_reduced =
      !optim.comm->direct() || !agreement.all_present || memory.accumulates ||
      (alone && (entry.keeps || writes_directions(optim))) ||
      (entry.sums &&
       (!sums_fit_gradients(optim) || (optim.world() == 1 && optim.options.wire != DType::none)));
  if (needs_reduced) ZERO_TRY(allocate_sums(call, optim, memory, memory.reduced));
  if (adds_apart(optim, memory)) ZERO_TRY(allocate_sums(call, optim, memory, memory.incoming));
  return Status();
}

Status refuse(Call& call, Optimizer& optim, Status why) {
  Entry entry;
  entry.local = std::move(why);
  return enter(call, optim, step_memory(optim), std::move(entry));
}

Status sync_placements(Call& call, Optimizer& optim, StepMemory& memory) {
  const std::vector<uint32_t> wanted = ZERO_TRY(call.exchange(
      "placements wanted", uint32_t{wants_outbox(optim, memory) ? kWantsOutbox : 0u}));
  uint32_t any = 0;
  for (const uint32_t flags : wanted) any |= flags;
  forget_grads(optim, memory);
  ZERO_TRY(allocate_wanted(call, optim, memory, any));
  place(optim, memory);
  EntryRecord mine;
  mine.version = memory.version;
  note_in_place(memory, mine);
  const std::vector<EntryRecord> all = ZERO_TRY(call.exchange("placements", mine));
  ZERO_TRY(adopt(call, optim, memory, all));
  memory.presence.clear();
  memory.present.clear();
  return Status();
}

}  // namespace zero
