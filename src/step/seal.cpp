// SPDX-License-Identifier: Apache-2.0
#include "step/seal.h"

#include <algorithm>

#include "base/hash.h"
#include "base/os.h"
#include "base/text.h"
#include "step/one_copy.h"
#include "step/tables.h"
#include "step/walk.h"

namespace zero {
namespace {

std::string registered_shape(std::span<const int64_t> shape) {
  std::string sizes;
  for (const int64_t size : shape) sizes += text(sizes.empty() ? "" : "x", size);
  return text("[", sizes, "]");
}

std::string group_line(size_t number, const Group& group) {
  if (group.custom != nullptr) return text("group ", number, " with ", group.custom->line());
  return text("group ", number, " with optimizer ", group.rule->name,
              group.slot_format == SlotFormat::bf16 ? " and state in bfloat16\n" : "\n");
}

std::string registration_lines(const Optimizer& optim) {
  const OptimizerOptions& options = optim.options;
  // This line has tabs between its fields, so that an error shows only those that differ.
  std::string lines = options.line + '\n';
  for (size_t g = 0; g < optim.groups.size(); g++) {
    if (optim.group_end(g) > static_cast<int64_t>(optim.sealed_params()))
      lines += group_line(g, optim.groups[g]);
  }
  for (size_t i = optim.sealed_params(); i < optim.params.size(); i++) {
    const Param& param = optim.params[i];
    lines += text("parameter '", param.name, "' with ", param.count, " elements (",
                  dtype_name(param.dtype), " ", registered_shape(param.shape), ", gradient ",
                  dtype_name(param.grad_dtype), ", group ", param.group, ", order ", param.order,
                  ", owner ", param.owner, ", flags ", param.flags);
    if (param.lr_scale != 1) lines += text(", lr_scale ", exact(param.lr_scale));
    if (param.weight_decay) lines += text(", weight_decay ", exact(*param.weight_decay));
    lines += ")\n";
  }
  for (size_t i = optim.sealed_buffers(); i < optim.buffers.size(); i++) {
    const Buffer& buffer = optim.buffers[i];
    lines += text("buffer '", buffer.name, "' with ", buffer.count, " elements (",
                  dtype_name(buffer.dtype), " ", registered_shape(buffer.shape), ")\n");
  }
  return lines;
}

/// Allocates the tables through which ranks publish their placements, if other ranks read them.
Result<std::shared_ptr<Arena>> allocate_tables(Call& call, const Optimizer& optim) {
  const bool alone = optim.on_device && optim.comm->gates() == nullptr;
  if (!optim.comm->direct() || alone) return std::shared_ptr<Arena>();
  const size_t bytes = table_bytes(std::max<size_t>(1, optim.params.size()));
  return call.allocate(bytes, ZERO_MEMORY_PER_RANK, Side::host);
}

/// Keeps ranks from returning before all have read the parameters, because a rank that returns may
/// change shared parameters.
Status all_have_masters(Call& call, const Optimizer& optim) {
  return optim.has_masters() ? call.vote("masters", Status()) : Status();
}

}  // namespace

Status take_masters(Call& call, Optimizer& optim, size_t first_section) {
  if (!optim.has_masters()) return Status();
  const Status taken = make_walk(call, optim)->take_masters(first_section);
  return taken.ok() ? taken : call.abort(taken, "masters");  // the seal cannot be undone
}

Status seal(Call& call, Optimizer& optim) {
  os().reached("seal.begin");
  ZERO_TRY(call.agree("seal", "the registration differs", registration_lines(optim)));
  ZERO_TRY(check_one_copy(call, optim));
  StepMemory& memory = step_memory(optim);
  Optimizer::Deal prepared = ZERO_TRY(call.vote("seal: allocate", optim.prepare_seal()));
  std::shared_ptr<Arena> tables = ZERO_TRY(allocate_tables(call, optim));
  if (optim.comm->gates() != nullptr && memory.records == nullptr) {
    const size_t bytes = static_cast<size_t>(optim.world()) * sizeof(NormSums);
    memory.records = ZERO_TRY(call.allocate(bytes, ZERO_MEMORY_PER_RANK));
  }
  os().reached("seal.prepared");
  const size_t sections = optim.plan.sections().size();
  optim.commit_seal(std::move(prepared));
  if (tables != nullptr) {
    memory.tables = std::move(tables);
    optim.counters.control_bytes = static_cast<int64_t>(memory.tables->bytes());
  }
  forget_places(optim, memory);
  ZERO_TRY(take_masters(call, optim, sections));
  os().reached("seal.done");
  return all_have_masters(call, optim);
}

void forget_places(Optimizer& optim, StepMemory& memory) {
  memory.placed_from.addresses = 0;
  memory.staging.reset();
  memory.outbox.reset();
  memory.outbox_used = false;
  optim.counters.staging_bytes = 0;
  drop_views(memory);
}

Status retake_masters(Call& call, Optimizer& optim) {
  ZERO_TRY(take_masters(call, optim, 0));
  return all_have_masters(call, optim);
}

// ---- Checks that ranks begin with the same parameters, in order to detect a missing broadcast.

namespace {

/// Returns true if all ranks hold the parameter in the same memory.
bool is_one_copy(Optimizer& optim, size_t param) {
  const StepMemory& memory = step_memory(optim);
  if (memory.tables == nullptr || !memory.params_alike) return false;
  return in_one_copy(*optim.comm, memory.placements[param].data);
}

/// Returns a checksum for each parameter that is compared, computed from the checksums of its
/// parts, or 0 if all ranks hold it in the same memory.
Result<std::vector<uint64_t>> checksums(Call& call, Optimizer& optim) {
  Walk::Parts parts;
  std::vector<size_t> ends;  // of each parameter's parts
  for (size_t i = optim.alike_params; i < optim.sealed_params(); i++) {
    const Param& param = optim.params[i];
    if (!is_one_copy(optim, i)) add_parts(parts, param.data, param.bytes());
    ends.push_back(parts.size());
  }
  std::vector<uint64_t> hashes(parts.size()), sums;
  ZERO_TRY(make_walk(call, optim)->hash(parts, hashes));
  for (size_t begin = 0; const size_t end : ends) {
    const auto of_param = std::span(hashes).subspan(begin, end - begin);
    sums.push_back(of_param.empty() ? 0 : hash64(std::as_bytes(of_param)));
    begin = end;
  }
  return sums;
}

/// Fails with a text that names the first parameter that differs.
Status name_difference(Call& call, const Optimizer& optim, std::span<const uint64_t> sums) {
  std::string lines;
  for (size_t i = 0; i < sums.size(); i++)
    lines += text("parameter '", optim.params[optim.alike_params + i].name, "' with checksum ",
                  hex(sums[i]), "\n");
  return call.agree("parameters",
                    "ranks do not begin with the same parameters; call zero_broadcast_params "
                    "before the first step",
                    lines);
}

}  // namespace

Status vote_ready(Call& call, Optimizer& optim, Status ready) {
  const bool compares =
      optim.world() > 1 && optim.alike_params < optim.sealed_params() && call.capture() == 0;
  std::vector<uint64_t> sums;
  if (compares && ready.ok()) {
    Result<std::vector<uint64_t>> made = checksums(call, optim);
    if (made.ok()) sums = std::move(*made);
    ready = made.failure();
  }
  if (optim.saving != nullptr) optim.saving->keep_for_step();
  const uint64_t mine = compares ? hash64(std::as_bytes(std::span(sums))) : 0;
  const Same<uint64_t> all = ZERO_TRY(call.vote("ready", ready, Same(mine)));
  if (all.differs != 0) return name_difference(call, optim, sums);
  if (compares) optim.alike_params = optim.sealed_params();
  return Status();
}

}  // namespace zero
