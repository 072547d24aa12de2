// SPDX-License-Identifier: Apache-2.0
// The training loop and checkpoints.
#include <cstddef>
#include <span>

#include "api/checkpoint.h"
#include "api/guard.h"
#include "api/options.h"
#include "base/text.h"
#include "state/collective.h"
#include "step/backward.h"
#include "step/enter.h"
#include "step/step.h"

namespace {

using namespace zero;
using namespace zero::api;

constexpr zero_step_options kStepDefaults = {sizeof(zero_step_options), nullptr, 0,
                                             ZERO_REDUCE_MEAN,          0,       nullptr};
constexpr size_t kStepOldest = sizeof(zero_step_options);
constexpr zero_save_options kSaveDefaults = {sizeof(zero_save_options), 0, 0};
constexpr size_t kSaveOldest = sizeof(zero_save_options);
constexpr zero_load_options kLoadDefaults = {sizeof(zero_load_options), 0, 0};
constexpr size_t kLoadOldest = sizeof(zero_load_options);
constexpr size_t kResultOldest = offsetof(zero_result, loss_scale);

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
Result<Path> read_path(const char* directory, const Options* options, const Options& defaults,
                       size_t oldest, int32_t known, const char* name) {
  const Options read = ZERO_TRY(read_struct(options, defaults, oldest, name));
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
  auto path = read_path(directory, options, kSaveDefaults, kSaveOldest, ZERO_SAVE_REPLACE,
                        "zero_save_options");
  Status local = path.ok() ? Status() : path.failure();
  if (local.ok() && optim.not_loaded) {
    local = Status(ZERO_ERR_NOT_LOADED, "a load failed half way: there is no state to save");
  }
  ZERO_TRY(enter_state(call, optim, std::move(local)));
  return save_state(call, optim, path->directory, path->flags);
}

Status load(Call& call, Optimizer& optim, const char* directory, const zero_load_options* options) {
  auto path = read_path(directory, options, kLoadDefaults, kLoadOldest, ZERO_LOAD_KEEP_SETTINGS,
                        "zero_load_options");
  ZERO_TRY(enter_state(call, optim, path.ok() ? Status() : path.failure()));
  return load_state(call, optim, path->directory, path->flags);
}

}  // namespace zero::api

zero_status zero_broadcast_params(zero_optim* optim, int32_t root, void* stream) {
  return on_all(optim, Operation::broadcast_params, {.rank = root},
                [&](Call& call, Optimizer& found) -> Status {
                  const Status bad = check_stream(found, stream);
                  step_memory(found).stream = stream;
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
                  const Status bad = take_capture(found, stream);
                  return bad.ok() ? reduce_grads(call, found, {grads, count, flags, stream})
                                  : refuse(call, found, bad);
                });
}

zero_status zero_clip_grad_norm(zero_optim* optim, double max_norm, double norm_type, double* norm,
                                void* stream) {
  return on_all(optim, Operation::clip_grad_norm, {.limit = max_norm, .norm_type = norm_type},
                [&](Call& call, Optimizer& found) -> Status {
                  const Status bad = take_capture(found, stream);
                  return bad.ok() ? clip_grad_norm(call, found, max_norm, norm_type, norm,
                                                   {.stream = stream})
                                  : refuse(call, found, bad);
                });
}

zero_status zero_clip_grad_norm_of(zero_optim* optim, const int64_t* params, size_t count,
                                   double max_norm, double norm_type, double* norm, void* stream) {
  const std::span<const int64_t> chosen(params, params == nullptr ? 0 : count);
  return on_all(optim, Operation::clip_grad_norm_of,
                {.limit = max_norm, .norm_type = norm_type, .list = std::as_bytes(chosen)},
                [&](Call& call, Optimizer& found) -> Status {
                  Status bad = check_stream(found, stream);
                  if (bad.ok() && params == nullptr && count > 0)
                    bad = Status(ZERO_ERR_ARGUMENT, text("params is NULL; count is ", count));
                  return bad.ok()
                             ? clip_grad_norm_of(call, found, chosen, max_norm, norm_type, norm)
                             : refuse(call, found, bad);
                });
}

zero_status zero_clip_grad_value(zero_optim* optim, double max_value, void* stream) {
  return on_all(optim, Operation::clip_grad_value, {.limit = max_value},
                [&](Call& call, Optimizer& found) -> Status {
                  const Status bad = take_capture(found, stream);
                  return bad.ok() ? clip_grad_value(call, found, max_value, {.stream = stream})
                                  : refuse(call, found, bad);
                });
}

zero_status zero_loss_scale_set(zero_optim* optim, double scale) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    if (!LossScale::allowed(scale))
      return Status(ZERO_ERR_ARGUMENT,
                    text("the loss scale is ", scale, "; 2^-100 to 2^100 are allowed"));
    ZERO_TRY(found.check_open());
    found.loss_scale = {.scale = scale, .good_steps = 0};
    found.loss_scale_given = scale;
    return Status();
  });
}

zero_status zero_loss_scale_set_from(zero_optim* optim, const void* data, int32_t dtype) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    const GivenSetting given = ZERO_TRY(read_given(found, data, dtype, "the loss scale"));
    if (found.options.loss_scale.dynamic())
      return Status(ZERO_ERR_STATE, "the loss scale is dynamic: it is on the device already");
    ZERO_TRY(found.check_open());
    found.loss_scale_from = given;
    found.layout++;
    return Status();
  });
}

zero_status zero_loss_scale_get(const zero_optim* optim, double* scale) {
  return on_query(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(scale, "scale"));
    *scale = found.loss_scale.scale;
    return Status();
  });
}

zero_status zero_step_options_init(zero_step_options* options, size_t struct_size) {
  return report(init_struct(options, struct_size, kStepDefaults, "zero_step_options"));
}

zero_status zero_step_begin(zero_optim* optim, const zero_step_options* options) {
  const int32_t flags = peek(options, &zero_step_options::reduce_flags, kStepOldest);
  return on_all(
      optim, Operation::step_begin, {.flags = flags}, [&](Call& call, Optimizer& found) -> Status {
        auto read = read_struct(options, kStepDefaults, kStepOldest, "zero_step_options");
        if (!read.ok()) return refuse(call, found, read.failure());
        return step_begin(call, found, read->reduce_flags, check_begin_options(found, *read));
      });
}

zero_status zero_step(zero_optim* optim, const zero_step_options* options) {
  zero_status news = ZERO_OK;
  const int32_t flags = peek(options, &zero_step_options::reduce_flags, kStepOldest);
  const zero_status status =
      on_all(optim, Operation::step, {.flags = flags}, [&](Call& call, Optimizer& found) -> Status {
        auto read = read_struct(options, kStepDefaults, kStepOldest, "zero_step_options");
        if (!read.ok()) return refuse(call, found, read.failure());
        Status bad = check_step_options(*read);
        if (bad.ok()) bad = take_capture(found, read->stream);
        if (!bad.ok()) return refuse(call, found, bad);
        news = ZERO_TRY(
            step(call, found, {read->grads, read->grad_count, read->reduce_flags, read->stream}));
        return Status();
      });
  return status == ZERO_OK ? news : status;
}

zero_status zero_result_init(zero_result* result, size_t struct_size) {
  zero_result none{};
  none.grad_norm = -1;
  none.clip_factor = 1;
  none.loss_scale = 1;
  return report(init_struct(result, struct_size, none, "zero_result"));
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
    return write_struct(result, out, kResultOldest, "zero_result");
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

zero_status zero_save_options_init(zero_save_options* options, size_t struct_size) {
  return report(init_struct(options, struct_size, kSaveDefaults, "zero_save_options"));
}

zero_status zero_state_save(zero_optim* optim, const char* directory,
                            const zero_save_options* options) {
  const int32_t flags = peek(options, &zero_save_options::flags, kSaveOldest);
  return on_all(
      optim, Operation::save, {.flags = flags, .words = directory},
      [&](Call& call, Optimizer& found) { return save(call, found, directory, options); });
}

zero_status zero_load_options_init(zero_load_options* options, size_t struct_size) {
  return report(init_struct(options, struct_size, kLoadDefaults, "zero_load_options"));
}

zero_status zero_state_load(zero_optim* optim, const char* directory,
                            const zero_load_options* options) {
  const int32_t flags = peek(options, &zero_load_options::flags, kLoadOldest);
  return on_all(
      optim, Operation::load, {.flags = flags, .words = directory},
      [&](Call& call, Optimizer& found) { return load(call, found, directory, options); });
}
