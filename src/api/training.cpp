// SPDX-License-Identifier: Apache-2.0
// The training loop and checkpoints.
#include <cstddef>
#include <span>

#include "api/commands.h"
#include "api/options.h"
#include "step/backward.h"
#include "step/step.h"

namespace {

using namespace zero;
using namespace zero::api;

/// What is wrong with a save's or a load's arguments.
template <class Options>
Status check_path(const char* directory, const Options* options, int32_t known) {
  const Options read = ZERO_TRY(read_struct(options));
  const char* const name = Sized<Options>::kName;
  if (directory == nullptr) return bad_argument("directory is NULL");
  if (*directory == '\0') return bad_argument("directory is empty");
  if (read.reserved != 0) return bad_argument(name, ".reserved is ", read.reserved, ", not 0");
  if ((read.flags & ~known) == 0) return Status();
  return bad_argument(name, ".flags ", read.flags, " are unknown");
}

/// This rank's part of a step.
Own own_step(const zero_step_options* options) {
  auto read = read_struct(options);
  if (!read.ok()) return {.local = read.failure()};
  Own own{.stream = read->stream, .grads = read->grads, .grad_count = read->grad_count};
  if (read->reserved != 0)
    own.local = bad_argument("zero_step_options.reserved is ", read->reserved, ", not 0");
  return own;
}

}  // namespace

zero_status zero_broadcast_params(zero_optim* optim, int32_t root, void* stream) {
  return command(optim, Operation::broadcast_params, {.rank = root}, stream);
}

zero_status zero_broadcast_buffers(zero_optim* optim, int32_t root, void* stream) {
  return command(optim, Operation::broadcast_buffers, {.rank = root}, stream);
}

zero_status zero_grad_ready(zero_optim* optim, int64_t param, void* grad, void* stream) {
  return guard([&]() -> Status {
    const std::shared_ptr<OptimHandle> handle = ZERO_TRY(find_handle(optim));
    const std::lock_guard announcing(handle->announcing);
    const Turn turn(*handle);
    ZERO_TRY(turn.check());
    ZERO_TRY(await_steps(*handle, Steps::behind));
    ZERO_TRY(check_stream(*handle->optim, stream));
    if (handle->optim->comm->device() != nullptr && grad != nullptr)
      ZERO_TRY(queued::note_announced(*handle->optim, stream));
    return grad_ready(*handle->optim, param, static_cast<std::byte*>(grad));
  });
}

zero_status zero_reduce_grads(zero_optim* optim, void* const* grads, size_t count, int32_t flags,
                              void* stream) {
  return command(optim, Operation::reduce_grads, {.flags = flags},
                 [&] { return Own{.stream = stream, .grads = grads, .grad_count = count}; });
}

zero_status zero_clip_grad_norm(zero_optim* optim, const int64_t* params, size_t count,
                                double max_norm, double norm_type, double* norm, void* stream) {
  const std::span<const int64_t> list(params, params == nullptr ? 0 : count);
  const Arguments with{.limit = max_norm,
                       .norm_type = norm_type,
                       .some = params != nullptr,
                       .list = std::as_bytes(list)};
  return command(optim, Operation::clip_grad_norm, with, [&] {
    Own own{.stream = stream, .norm = norm};
    if (params == nullptr && count > 0)
      own.local = bad_argument("params is NULL; count is ", count);
    return own;
  });
}

zero_status zero_clip_grad_value(zero_optim* optim, double max_value, void* stream) {
  return command(optim, Operation::clip_grad_value, {.limit = max_value}, stream);
}

zero_status zero_step_begin(zero_optim* optim, const zero_step_options* options) {
  const int32_t flags = peek(options, &zero_step_options::reduce_flags);
  return command(optim, Operation::step_begin, {.flags = flags}, [&] {
    Own own = own_step(options);
    if (own.local.ok() && (own.grads != nullptr || own.grad_count != 0))
      own.local = bad_argument(
          "zero_step_begin takes no gradients: zero_grad_ready announces them, and "
          "zero_step is given the rest");
    return own;
  });
}

zero_status zero_step(zero_optim* optim, const zero_step_options* options) {
  const int32_t flags = peek(options, &zero_step_options::reduce_flags);
  return command(optim, Operation::step, {.flags = flags}, [&] { return own_step(options); });
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

zero_status zero_state_save(zero_optim* optim, const char* directory,
                            const zero_save_options* options) {
  const int32_t flags = peek(options, &zero_save_options::flags);
  return command(optim, Operation::save, {.flags = flags, .words = directory},
                 [&] { return Own{.local = check_path(directory, options, ZERO_SAVE_REPLACE)}; });
}

zero_status zero_state_load(zero_optim* optim, const char* directory,
                            const zero_load_options* options) {
  const int32_t flags = peek(options, &zero_load_options::flags);
  return command(optim, Operation::load, {.flags = flags, .words = directory}, [&] {
    return Own{.local = check_path(directory, options, ZERO_LOAD_KEEP_SETTINGS)};
  });
}
