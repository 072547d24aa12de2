// SPDX-License-Identifier: Apache-2.0
// The training loop and checkpoints.
#include <cstddef>
#include <span>

#include "api/checkpoint.h"
#include "api/guard.h"
#include "api/options.h"
#include "base/text.h"
#include "state/load.h"
#include "state/save.h"
#include "step/backward.h"
#include "step/enter.h"
#include "step/step.h"

namespace {

using namespace zero;
using namespace zero::api;

Status check_step_options(const zero_step_options& options) {
  if (options.reserved == 0) return Status();
  return Status(ZERO_ERR_ARGUMENT,
                text("zero_step_options.reserved is ", options.reserved, ", not 0"));
}

Status check_begin_options(const Optimizer& optim, const zero_step_options& options) {
  ZERO_TRY(optim.check_host("zero_step_begin"));
  if (options.grads != nullptr || options.grad_count != 0)
    return Status(ZERO_ERR_ARGUMENT,
                  "zero_step_begin takes no gradients: zero_grad_ready announces them, and "
                  "zero_step is given the rest");
  ZERO_TRY(check_step_options(options));
  return check_stream(optim, options.stream);
}

struct Path {
  std::string_view directory;
  int32_t flags;
};

template <class Options>
Result<Path> read_path(const char* directory, const Options* options, int32_t known) {
  const Options read = ZERO_TRY(read_struct(options));
  const char* const name = Sized<Options>::kName;
  if (directory == nullptr) return Status(ZERO_ERR_ARGUMENT, "directory is NULL");
  if (*directory == '\0') return Status(ZERO_ERR_ARGUMENT, "directory is empty");
  if (read.reserved != 0)
    return Status(ZERO_ERR_ARGUMENT, text(name, ".reserved is ", read.reserved, ", not 0"));
  if ((read.flags & ~known) != 0) {
    return Status(ZERO_ERR_ARGUMENT, text(name, ".flags ", read.flags, " are unknown"));
  }
  return Path{directory, read.flags};
}

/// Save and load begin alike: sealed, between steps.
Status enter_state(Call& call, Optimizer& optim, Status local) {
  Entry entry;
  entry.local = std::move(local);
  if (entry.local.ok()) entry.local = optim.check_params();
  if (entry.local.ok()) entry.local = optim.check_open();
  return enter(call, optim, step_memory(optim), std::move(entry));
}

}  // namespace

namespace zero::api {

Status save(Call& call, Optimizer& optim, const char* directory, const zero_save_options* options) {
  auto path = read_path(directory, options, ZERO_SAVE_REPLACE);
  Status local = path.ok() ? Status() : path.failure();
  if (local.ok() && optim.not_loaded) {
    local = Status(ZERO_ERR_NOT_LOADED, "a load failed half way: there is no state to save");
  }
  ZERO_TRY(enter_state(call, optim, std::move(local)));
  return save_state(call, optim, path->directory, path->flags);
}

Status load(Call& call, Optimizer& optim, const char* directory, const zero_load_options* options) {
  auto path = read_path(directory, options, ZERO_LOAD_KEEP_SETTINGS);
  ZERO_TRY(enter_state(call, optim, path.ok() ? Status() : path.failure()));
  return load_state(call, optim, path->directory, path->flags);
}

}  // namespace zero::api

zero_status zero_broadcast_params(zero_optim* optim, int32_t root, void* stream) {
  return on_all(optim, Operation::broadcast_params, {.rank = root},
                [&](Call& call, Optimizer& found) -> Status {
                  const Status bad = take_stream(call, found, stream);
                  return bad.ok() ? broadcast_params(call, found, root) : refuse(call, found, bad);
                });
}

zero_status zero_grad_ready(zero_optim* optim, int64_t param, void* grad, void* stream) {
  return guard([&]() -> Status {
    const std::shared_ptr<OptimHandle> handle = ZERO_TRY(find_handle(optim));
    const std::lock_guard announcing(handle->announcing);
    const Turn turn(*handle);
    ZERO_TRY(turn.check());
    ZERO_TRY(settle(*handle, Steps::behind));
    ZERO_TRY(check_stream(*handle->optim, stream));
    if (handle->optim->comm->device() != nullptr && grad != nullptr)
      ZERO_TRY(queued::note_announced(*handle->optim, stream));
    return grad_ready(*handle->optim, param, static_cast<std::byte*>(grad));
  });
}

zero_status zero_reduce_grads(zero_optim* optim, void* const* grads, size_t count, int32_t flags,
                              void* stream) {
  return on_all(optim, Operation::reduce_grads, {.flags = flags},
                [&](Call& call, Optimizer& found) -> Status {
                  const Status bad = take_capture(call, found, stream);
                  return bad.ok() ? reduce_grads(call, found, {grads, count, flags})
                                  : refuse(call, found, bad);
                });
}

zero_status zero_clip_grad_norm(zero_optim* optim, const int64_t* params, size_t count,
                                double max_norm, double norm_type, double* norm, void* stream) {
  const Clip clip{.max_norm = max_norm,
                  .norm_type = norm_type,
                  .some = params != nullptr,
                  .params = {params, params == nullptr ? 0 : count}};
  const Arguments arguments{.limit = max_norm,
                            .norm_type = norm_type,
                            .some = clip.some,
                            .list = std::as_bytes(clip.params)};
  return on_all(
      optim, Operation::clip_grad_norm, arguments, [&](Call& call, Optimizer& found) -> Status {
        Status bad = take_capture(call, found, stream);
        if (bad.ok() && params == nullptr && count > 0)
          bad = Status(ZERO_ERR_ARGUMENT, text("params is NULL; count is ", count));
        return bad.ok() ? clip_grad_norm(call, found, clip, norm) : refuse(call, found, bad);
      });
}

zero_status zero_clip_grad_value(zero_optim* optim, double max_value, void* stream) {
  return on_all(optim, Operation::clip_grad_value, {.limit = max_value},
                [&](Call& call, Optimizer& found) -> Status {
                  const Status bad = take_capture(call, found, stream);
                  return bad.ok() ? clip_grad_value(call, found, max_value)
                                  : refuse(call, found, bad);
                });
}

zero_status zero_step_begin(zero_optim* optim, const zero_step_options* options) {
  const int32_t flags = peek(options, &zero_step_options::reduce_flags);
  return on_all(
      optim, Operation::step_begin, {.flags = flags}, [&](Call& call, Optimizer& found) -> Status {
        auto read = read_struct(options);
        if (!read.ok()) return refuse(call, found, read.failure());
        return step_begin(call, found, read->reduce_flags, check_begin_options(found, *read));
      });
}

zero_status zero_step(zero_optim* optim, const zero_step_options* options) {
  zero_status news = ZERO_OK;
  const int32_t flags = peek(options, &zero_step_options::reduce_flags);
  const zero_status status =
      on_all(optim, Operation::step, {.flags = flags}, [&](Call& call, Optimizer& found) -> Status {
        auto read = read_struct(options);
        if (!read.ok()) return refuse(call, found, read.failure());
        Status bad = check_step_options(*read);
        if (bad.ok()) bad = take_capture(call, found, read->stream);
        if (!bad.ok()) return refuse(call, found, bad);
        news = ZERO_TRY(step(call, found, {read->grads, read->grad_count, read->reduce_flags}));
        return Status();
      });
  return status == ZERO_OK ? news : status;
}

zero_status zero_step_result(const zero_optim* optim, zero_result* result) {
  zero_status last = ZERO_OK;
  const zero_status status = on_query(optim, [&](Optimizer& found) -> Status {
    zero_result out{};
    out.step = found.step;
    out.skipped = found.skipped;
    out.nonfinite = found.outcome.nonfinite;
    out.grad_norm = found.outcome.grad_norm;
    out.clip_factor = found.outcome.clip_factor;
    out.status = last = found.outcome.status;
    out.loss_scale = found.loss_scale.scale;
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
      return Status(ZERO_ERR_ARGUMENT,
                    text("parameter ", param, " does not exist: there are ", params));
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
  return on_all(
      optim, Operation::save, {.flags = flags, .words = directory},
      [&](Call& call, Optimizer& found) { return save(call, found, directory, options); });
}

zero_status zero_state_load(zero_optim* optim, const char* directory,
                            const zero_load_options* options) {
  const int32_t flags = peek(options, &zero_load_options::flags);
  return on_all(
      optim, Operation::load, {.flags = flags, .words = directory},
      [&](Call& call, Optimizer& found) { return load(call, found, directory, options); });
}
