// SPDX-License-Identifier: Apache-2.0
#include "step/seal.h"

#include "base/os.h"
#include "base/text.h"
#include "step/norm.h"
#include "step/one_copy.h"
#include "step/tables.h"
#include "step/views.h"
#include "step/walk.h"

namespace zero {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string sizes;
  for (const int64_t size : shape) sizes += text(sizes.empty() ? "" : "x", size);
  return text("[", sizes, "]");
}

std::string registration_lines(const Optimizer& optim) {
  const OptimizerOptions& options = optim.options;
  // Tabs: only what differs of this line is shown.
  std::string lines = options.line + '\n';
  if (options.custom != nullptr) lines += options.custom->line();
  for (size_t i = optim.sealed_params(); i < optim.params.size(); i++) {
    const Param& param = optim.params[i];
    lines += text("parameter '", param.name, "' with ", param.count, " elements (",
                  dtype_name(param.dtype), " ", shape_text(param.shape), ", gradient ",
                  dtype_name(param.grad_dtype), ", group ", param.group, ", order ", param.order,
                  ", owner ", param.owner, ", flags ", param.flags);
    if (param.lr_scale != 1) lines += text(", lr_scale ", exact(param.lr_scale));
    if (param.weight_decay) lines += text(", weight_decay ", exact(*param.weight_decay));
    lines += ")\n";
  }
  for (size_t i = optim.sealed_buffers(); i < optim.buffers.size(); i++) {
    const Buffer& buffer = optim.buffers[i];
    lines += text("buffer '", buffer.name, "' with ", buffer.count, " elements (",
                  dtype_name(buffer.dtype), " ", shape_text(buffer.shape), ")\n");
  }
  return lines;
}

Status allocate_tables(Call& call, const Optimizer& optim, std::shared_ptr<Arena>& out) {
  const bool alone = optim.comm->device() != nullptr && optim.comm->gates() == nullptr;
  if (!optim.comm->direct() || alone) return Status();
  const size_t bytes = table_bytes(std::max<size_t>(1, optim.params.size()));
  out = ZERO_TRY(call.allocate(bytes, ZERO_MEMORY_PER_RANK, Side::host));
  return Status();
}

/// Where ranks whose streams wait for each other tell what they found.
Status allocate_records(Call& call, const Optimizer& optim, std::shared_ptr<Arena>& out) {
  if (optim.comm->gates() == nullptr || out != nullptr) return Status();
  const size_t bytes = static_cast<size_t>(optim.world()) * sizeof(NormSums);
  out = ZERO_TRY(call.allocate(bytes, ZERO_MEMORY_PER_RANK));
  return Status();
}

/// Who has returned may write shared parameters, so all have read them.
Status all_have_masters(Call& call, const Optimizer& optim) {
  return optim.has_masters() ? call.vote("masters", Status()) : Status();
}

}  // namespace

Status take_masters(Call& call, Optimizer& optim, size_t first_section) {
  return optim.has_masters() ? make_walk(call, optim)->take_masters(first_section) : Status();
}

Status seal(Call& call, Optimizer& optim) {
  os().reached("seal.begin");
  ZERO_TRY(call.agree("seal", "the registration differs", registration_lines(optim)));
  ZERO_TRY(check_one_copy(call, optim));
  StepMemory& memory = step_memory(optim);
  Result<Optimizer::Seal> prepared = optim.prepare_seal();
  ZERO_TRY(call.vote("seal: allocate", prepared.ok() ? Status() : prepared.failure()));
  std::shared_ptr<Arena> tables;
  ZERO_TRY(allocate_tables(call, optim, tables));
  ZERO_TRY(allocate_records(call, optim, memory.records));
  os().reached("seal.prepared");
  const size_t sections = optim.plan.sections().size();
  optim.commit_seal(std::move(prepared).value());
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
  memory.placements.clear();
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

}  // namespace zero
