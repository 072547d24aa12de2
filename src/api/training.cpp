// SPDX-License-Identifier: Apache-2.0
// Implements the calls of training: the loop, manual steps, and single tensors of the state.
#include <cstddef>
#include <span>

#include "api/commands.h"
#include "api/options.h"
#include "state/access.h"
#include "state/layout.h"
#include "step/backward.h"
#include "step/queued/queue.h"
#include "step/reduce.h"
#include "step/step.h"

namespace {

using namespace zero;
using namespace zero::api;

/// Returns this rank's own input to a step.
Own own_step(const zero_step_options* options) {
  auto read = read_struct(options);
  if (!read.ok()) return {.local = read.failure()};
  Own own{.stream = read->stream, .grads = read->grads, .grad_count = read->grad_count};
  if (read->reserved != 0)
    own.local = bad_argument("zero_step_options.reserved is ", read->reserved, ", not 0");
  return own;
}

Status get_grads(Optimizer& optim, const Range& range, void* values) {
  ZERO_TRY(check_sealed(optim, range.param));
  if (optim.phase != Phase::reduced)
    return wrong_state("no gradients have been reduced: call zero_reduce_grads first");
  ZERO_TRY(queued::check_capture(optim, 0));
  ZERO_TRY(check_range(optim, range, values));
  ZERO_TRY(check_owned(optim, range));
  Windows& windows = *ZERO_TRY(windows_of(optim));
  const auto copy = [&](const Segment& part, std::byte* out) -> Status {
    if (ZERO_TRY(copy_grads(optim, windows, part, out))) return Status();
    return wrong_state("no rank had a gradient for parameter '",
                       optim.params[static_cast<size_t>(range.param)].name, "'");
  };
  return for_each_owned(optim, range, static_cast<std::byte*>(values), copy);
}

/// Returns true if each parameter has one number of that name, unless a custom rule has such a
/// slot.
bool is_scalar(const Optimizer& optim, int64_t param, std::string_view name) {
  if (name != "step" && name != "mu_product") return false;
  const bool known = optim.check_param(param).ok();
  return find_slot(known ? optim.rule_of(optim.param(param)) : *optim.options.rule, name) < 0;
}

Status check_scalar(const char* name, int64_t first, int64_t count, const void* value) {
  ZERO_TRY(check_out(value, "values"));
  if (first == 0 && count == 1) return Status();
  return bad_argument("'", name, "' is a single number: first must be 0 and count 1, not ", first,
                      " and ", count);
}

}  // namespace

// ---- The loop.

zero_status zero_broadcast_params(zero_optim* optim, int32_t root, void* stream) {
  return guard(command(optim, Operation::broadcast_params, {.rank = root}, stream));
}

zero_status zero_broadcast_buffers(zero_optim* optim, int32_t root, void* stream) {
  return guard(command(optim, Operation::broadcast_buffers, {.rank = root}, stream));
}

zero_status zero_grad_ready(zero_optim* optim, int64_t param, void* grad, void* stream) {
  return guard([&]() -> Status {
    const std::shared_ptr<OptimHandle> handle = ZERO_TRY(find_handle(optim));
    const std::lock_guard announcing(handle->announcing);
    const Turn turn(*handle);
    ZERO_TRY(turn.check());
    ZERO_TRY(await_steps(*handle, Steps::queued));
    ZERO_TRY(check_stream(*handle->optim, stream));
    if (grad != nullptr) ZERO_TRY(queued::note_announced(*handle->optim, stream));
    return grad_ready(*handle->optim, param, static_cast<std::byte*>(grad));
  });
}

zero_status zero_reduce_grads(zero_optim* optim, void* const* grads, size_t count, int32_t flags,
                              void* stream) {
  return guard(command(optim, Operation::reduce_grads, {.flags = flags},
                       [&] { return Own{.stream = stream, .grads = grads, .grad_count = count}; }));
}

zero_status zero_clip_grad_norm(zero_optim* optim, const int64_t* params, size_t count,
                                double max_norm, double norm_type, double* norm, void* stream) {
  const std::span<const int64_t> list(params, params == nullptr ? 0 : count);
  const Arguments with{.limit = max_norm,
                       .norm_type = norm_type,
                       .some = params != nullptr,
                       .list = std::as_bytes(list)};
  return guard(command(optim, Operation::clip_grad_norm, with, [&] {
    Own own{.stream = stream, .norm = norm};
    if (params == nullptr && count > 0)
      own.local = bad_argument("count is ", count, ", but params is NULL");
    return own;
  }));
}

zero_status zero_clip_grad_value(zero_optim* optim, double max_value, void* stream) {
  return guard(command(optim, Operation::clip_grad_value, {.limit = max_value}, stream));
}

zero_status zero_step_begin(zero_optim* optim, const zero_step_options* options) {
  const int32_t flags = peek(options, &zero_step_options::reduce_flags);
  return guard(command(optim, Operation::step_begin, {.flags = flags}, [&] {
    Own own = own_step(options);
    if (own.local.ok() && (own.grads != nullptr || own.grad_count != 0))
      own.local = bad_argument(
          "zero_step_begin takes no gradients: announce them with zero_grad_ready, and "
          "pass the rest to zero_step");
    return own;
  }));
}

zero_status zero_step(zero_optim* optim, const zero_step_options* options) {
  const int32_t flags = peek(options, &zero_step_options::reduce_flags);
  return guard(
      command(optim, Operation::step, {.flags = flags}, [&] { return own_step(options); }));
}

zero_status zero_step_result(const zero_optim* optim, zero_result* result) {
  zero_status last = ZERO_OK;
  const zero_status status = on_query(optim, [&](Optimizer& found) -> Status {
    zero_result out{};
    out.step = found.state.steps;
    out.skipped = found.state.skipped;
    out.nonfinite = static_cast<int64_t>(found.state.last_nonfinite);
    out.grad_norm = found.state.last_norm;
    out.clip_factor = found.state.last_clip_factor;
    out.status = last = found.last_step;
    out.loss_scale = found.state.loss_scale;
    return write_struct(result, out, "result");
  });
  return status == ZERO_OK ? last : status;
}

zero_status zero_param_wait(zero_optim* optim, int64_t param, void* stream) {
  return guard([&]() -> Status {
    const std::shared_ptr<OptimHandle> handle = ZERO_TRY(find_handle(optim));
    ZERO_TRY(check_stream(*handle->optim, stream));
    const int64_t params = handle->optim->registered;
    if (param < ZERO_ALL_PARAMS || param >= params)
      return bad_argument("parameter ", param, " does not exist: there are ", params);
    if (handle->optim->comm->device() != nullptr)
      return queued::wait_for_param(*handle->optim, param, stream);
    if (handle->background == nullptr) return Status();
    return param == ZERO_ALL_PARAMS ? handle->background->complete()
                                    : handle->background->wait(static_cast<size_t>(param));
  });
}

zero_status zero_drop_grads(zero_optim* optim) {
  return on_optim(optim, [](Optimizer& found) -> Status { return drop_grads(found); });
}

// ---- Manual steps.

zero_status zero_grad_get(const zero_optim* optim, int64_t param, int64_t first, int64_t count,
                          void* values) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    return get_grads(found, {param, first, count}, values);
  });
}

zero_status zero_rebalance(zero_optim* optim, const int32_t* owners, size_t count, void* stream) {
  const std::span<const int32_t> list(owners, owners == nullptr ? 0 : count);
  return guard(command(optim, Operation::rebalance, {.list = std::as_bytes(list)}, [&] {
    Own own{.stream = stream};
    if (owners == nullptr && count > 0)
      own.local = bad_argument("count is ", count, ", but owners is NULL");
    return own;
  }));
}

zero_status zero_share_params(zero_optim* optim, int32_t flags, void* stream) {
  return guard(command(optim, Operation::share_params, {.flags = flags}, stream));
}

// ---- Single tensors of the state.

zero_status zero_state_info(const zero_optim* optim, int64_t param, int32_t* dtype,
                            const char** names, size_t capacity, size_t* count) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(count, "count"));
    if (names == nullptr && capacity > 0) return bad_argument("names is NULL");
    ZERO_TRY(check_sealed(found, param));
    const uint32_t stored = stored_slots(found, param);
    size_t there = 0;
    for (int slot = 0; slot < kSlotCount; slot++) {
      if (!(stored >> slot & 1)) continue;
      if (there < capacity) names[there] = slot_name(found.rule_of(found.param(param)), slot);
      there++;
    }
    *count = there;
    if (dtype != nullptr)
      *dtype = static_cast<int32_t>(sum_dtype(found.params[static_cast<size_t>(param)].dtype));
    return Status();
  });
}

zero_status zero_state_get(const zero_optim* optim, int64_t param, const char* name, int64_t first,
                           int64_t count, void* values) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    if (name == nullptr || !is_scalar(found, param, name))
      return get_state(found, {param, first, count}, name, values);
    ZERO_TRY(check_scalar(name, first, count, values));
    *static_cast<double*>(values) = ZERO_TRY(get_scalar(found, param, name));
    return Status();
  });
}

zero_status zero_state_set(zero_optim* optim, int64_t param, const char* name, int64_t first,
                           int64_t count, const void* values) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    if (name == nullptr || !is_scalar(found, param, name))
      return set_state(found, {param, first, count}, name, values);
    ZERO_TRY(check_scalar(name, first, count, values));
    return set_scalar(found, param, name, *static_cast<const double*>(values));
  });
}

zero_status zero_state_gather(zero_optim* optim, int64_t param, const char* name, int32_t to,
                              void* values, size_t count) {
  return guard(command(optim, Operation::state_gather, {.rank = to, .param = param, .words = name},
                       [&] { return Own{.values = values, .count = count}; }));
}
