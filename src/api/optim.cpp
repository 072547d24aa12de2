// SPDX-License-Identifier: Apache-2.0
// Implements the calls that build an optimizer, and the calls on its settings.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "api/commands.h"
#include "api/options.h"
#include "base/container.h"
#include "device/thread_pool.h"
#include "step/queued/walk.h"

namespace {

using namespace zero;
using namespace zero::api;

constexpr int32_t kParamFlags = ZERO_PARAM_ORDER | ZERO_PARAM_PADDED | ZERO_PARAM_FROZEN |
                                ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY;

Status apply_settings(const Rule& rule, std::vector<double>& settings, const char* const* names,
                      const double* values, size_t count) {
  if (count == 0) return Status();
  if (names == nullptr || values == nullptr)
    return bad_argument("setting_count is ", count, ", but names or values is NULL");
  std::array<bool, kMaxSettings> given = {};
  for (size_t i = 0; i < count; i++) {
    if (names[i] == nullptr) return bad_argument("the name of setting ", i, " is NULL");
    const int at = find_setting(rule, names[i]);
    if (at < 0) return no_setting(rule, names[i]);
    if (std::exchange(given[static_cast<size_t>(at)], true))
      return bad_argument("setting '", names[i], "' was given twice");
    const Setting& setting = rule.settings[static_cast<size_t>(at)];
    if (!setting.range.allows(values[i]))
      return bad_argument("setting '", names[i], "' is ", values[i], "; it must be ",
                          setting.range.text);
    settings[static_cast<size_t>(at)] = values[i];
  }
  return Status();
}

int default_threads(int32_t world) { return std::clamp(usable_cores() / std::max(world, 1), 1, 4); }

/// Returns a floating type, or any type if `kept`. 0 stands for `initial`. `tensor` and `field` are
/// for error texts.
Result<DType> read_dtype(int32_t number, DType initial, bool kept, std::string_view tensor,
                         const char* field) {
  const DType dtype = number == 0 ? initial : static_cast<DType>(number);
  if (is_floating(dtype) || (kept && size_of(dtype) > 0)) return dtype;
  if (size_of(dtype) == 0) return bad_argument(tensor, ": ", field, ' ', number, " is unknown");
  return unsupported(tensor, ": ", field, ' ', dtype_name(dtype),
                     " cannot be trained: it must be a floating-point type");
}

Result<std::vector<int64_t>> read_shape(int32_t ndim, const int64_t* shape,
                                        std::string_view tensor) {
  if (ndim < 0 || ndim > 16)
    return bad_argument(tensor, ": ndim is ", ndim, "; it must be from 0 to 16");
  if (ndim > 0 && shape == nullptr)
    return bad_argument(tensor, ": ndim is ", ndim, ", but shape is NULL");
  return std::vector<int64_t>(shape, shape + ndim);
}

Result<Param> read_param(const zero_param* given, bool with_names) {
  const zero_param param = ZERO_TRY(read_struct(given));
  if (with_names && param.name == nullptr) return bad_argument("a parameter's name is NULL");
  const char* name = with_names ? param.name : "";
  const std::string tensor = text("parameter '", name, "'");
  if (param.reserved != 0) return bad_argument(tensor, ": reserved is ", param.reserved, ", not 0");
  const bool frozen = (param.flags & ZERO_PARAM_FROZEN) != 0;
  const DType dtype = ZERO_TRY(read_dtype(param.dtype, DType::f32, frozen, tensor, "dtype"));
  const DType trained = is_floating(dtype) ? dtype : DType::f32;
  const DType grad_dtype =
      ZERO_TRY(read_dtype(param.grad_dtype, trained, false, tensor, "grad_dtype"));
  std::vector<int64_t> shape = ZERO_TRY(read_shape(param.ndim, param.shape, tensor));
  if ((param.flags & ~kParamFlags) != 0)
    return bad_argument(tensor, ": flags ", param.flags, " are unknown");
  Param out{.name = name,
            .shape = std::move(shape),
            .order = param.order,
            .owner = param.owner,
            .flags = param.flags,
            .dtype = dtype,
            .grad_dtype = grad_dtype,
            .data = static_cast<std::byte*>(param.data),
            .grad = static_cast<std::byte*>(param.grad)};
  if ((param.flags & ZERO_PARAM_LR_SCALE) != 0) out.lr_scale = param.lr_scale;
  if ((param.flags & ZERO_PARAM_WEIGHT_DECAY) != 0) out.weight_decay = param.weight_decay;
  return out;
}

Result<Buffer> read_buffer(const zero_buffer* given) {
  const zero_buffer buffer = ZERO_TRY(read_struct(given));
  if (buffer.name == nullptr) return bad_argument("a buffer's name is NULL");
  const std::string tensor = text("buffer '", buffer.name, "'");
  const DType dtype = ZERO_TRY(read_dtype(buffer.dtype, DType::f32, true, tensor, "dtype"));
  std::vector<int64_t> shape = ZERO_TRY(read_shape(buffer.ndim, buffer.shape, tensor));
  return Buffer{.name = buffer.name,
                .shape = std::move(shape),
                .dtype = dtype,
                .data = static_cast<std::byte*>(buffer.data)};
}

/// Reads the update rule, which is built in or custom.
Status read_rule(const zero_options& read, OptimizerOptions& options) {
  if (read.optimizer != ZERO_OPTIMIZER_CUSTOM) {
    options.rule = find_rule(read.optimizer);
    if (options.rule == nullptr)
      return bad_argument("optimizer is ", read.optimizer, "; no ZERO_OPTIMIZER_* has that number");
    if (read.custom == nullptr) return {};
    return bad_argument("custom is set, but optimizer is ", read.optimizer, " (",
                        options.rule->name, "), not ZERO_OPTIMIZER_CUSTOM");
  }
  options.custom_rule = ZERO_TRY(read_custom(read.custom));
  options.rule = &options.custom_rule->rule();
  return {};
}

/// Returns the group with the rule that its options name. It begins with the defaults of that rule,
/// or as `initial` if the options name none.
Result<Group> begin_group(const zero_group_options& read, const Group& initial) {
  if (read.custom != nullptr && read.optimizer != nullptr)
    return bad_argument("both optimizer, '", read.optimizer, "', and custom of the group are set");
  if (read.custom != nullptr) {
    auto custom = ZERO_TRY(read_custom(read.custom));
    return group_of(custom->rule(), custom);
  }
  if (read.optimizer == nullptr) return initial;
  const Rule* const rule = find_rule(std::string_view(read.optimizer));
  return rule == nullptr ? Result<Group>(no_rule(read.optimizer)) : group_of(*rule);
}

Result<SlotFormat> read_slot_format(const zero_group_options& read, const Rule& rule) {
  if (read.reserved != 0)
    return bad_argument("zero_group_options.reserved is ", read.reserved, ", not 0");
  const auto format = static_cast<SlotFormat>(read.state_dtype);
  if (format == SlotFormat::full) return format;
  if (format != SlotFormat::bf16)
    return bad_argument("state_dtype is ", read.state_dtype,
                        "; no ZERO_STATE_DTYPE_* has that number");
  if (!is_custom(rule)) return format;
  return unsupported("state_dtype is ZERO_STATE_DTYPE_BFLOAT16, but '", rule.name,
                     "' is your own function: leave state_dtype at ZERO_STATE_DTYPE_FULL");
}

// ---- The loss scale is a setting by name only.

bool is_loss_scale(const char* name) { return std::string_view(name) == "loss_scale"; }

/// Returns how a call on a setting treats earlier steps. They determine the loss scale, so a call
/// that reads or changes it waits for them.
Steps steps_of(const char* name) {
  return name != nullptr && is_loss_scale(name) ? Steps::awaited : Steps::queued;
}

Status check_all_groups(int32_t group) {
  if (group == ZERO_ALL_GROUPS) return Status();
  return bad_argument("group is ", group, "; loss_scale can only be set for ZERO_ALL_GROUPS");
}

Status set_loss_scale(Optimizer& optim, int32_t group, double scale) {
  ZERO_TRY(check_all_groups(group));
  if (!loss_scale_allowed(scale))
    return bad_argument("the loss scale is ", scale, "; it must be from 2^-100 to 2^100");
  ZERO_TRY(optim.check_open());
  optim.set_loss_scale({.scale = scale});
  optim.loss_scale_given = scale;
  return Status();
}

Status set_loss_scale_from(Optimizer& optim, int32_t group, const GivenSetting& given) {
  ZERO_TRY(check_all_groups(group));
  if (optim.options.scales_loss())
    return wrong_state("the loss scale is dynamic: it is already on the device");
  ZERO_TRY(optim.check_open());
  optim.loss_scale_from = given;
  optim.layout++;
  return Status();
}

}  // namespace

namespace zero::api {

Result<Group> read_group(const zero_group_options& read, const Group& initial) {
  Group group = ZERO_TRY(begin_group(read, initial));
  group.slot_format = ZERO_TRY(read_slot_format(read, *group.rule));
  ZERO_TRY(
      apply_settings(*group.rule, group.settings, read.names, read.values, read.setting_count));
  return group;
}

Result<std::vector<Param>> read_params(const zero_param* params, size_t count, bool with_names) {
  if (params == nullptr || count == 0) return bad_argument("no parameters were given");
  return read_array<Param>(params, count, [with_names](const zero_param* param) {
    return read_param(param, with_names);
  });
}

Result<ReadOptions> read_optim_options(const zero_options* given, int32_t world) {
  const zero_options read = ZERO_TRY(read_struct(given));
  ReadOptions out;
  OptimizerOptions& options = out.options;
  ZERO_TRY(read_rule(read, options));
  ZERO_TRY(read_options(read, options));
  if (world % options.instances != 0)
    return bad_argument("instances is ", options.instances, ", which does not divide a world of ",
                        world, " ranks: choose one that does");
  if (options.threads == 0) options.threads = default_threads(world);
  for (const Setting& setting : options.rule->settings) out.settings.push_back(setting.initial);
  ZERO_TRY(
      apply_settings(*options.rule, out.settings, read.names, read.values, read.setting_count));
  return out;
}

}  // namespace zero::api

zero_status zero_create(zero_optim** out, zero_comm* comm, const zero_options* options) {
  return guard([&]() -> Status {
    const std::shared_ptr<Comm> seat = ZERO_TRY(find_handle(comm));
    ZERO_TRY(check_out(out, "out"));
    ReadOptions read = ZERO_TRY(read_optim_options(options, seat->world()));
    if (seat->device() != nullptr) ZERO_TRY(queued::check_options(*seat, read.options));
    auto pool = ZERO_TRY(ThreadPool::create(read.options.threads));
    auto optim =
        std::make_unique<Optimizer>(seat, read.options, std::move(read.settings), std::move(pool));
    if (seat->device() != nullptr)
      step_memory(*optim).queue = ZERO_TRY(queued::Queue::create(*optim));
    auto handle = std::make_shared<OptimHandle>(std::move(optim));
    if (read.options.overlap_gather && seat->direct() && seat->device() == nullptr) {
      handle->background = ZERO_TRY(Background::create(*seat));
      step_memory(*handle->optim).background = handle->background.get();
    }
    *out = add_handle(std::move(handle));
    return Status();
  });
}

zero_status zero_register_params(zero_optim* optim, const zero_group_options* options,
                                 const zero_param* params, size_t count, int32_t* group) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(found.check_open());
    const zero_group_options read = ZERO_TRY(read_struct(options));
    Group added = ZERO_TRY(read_group(read, found.initial));
    if (found.on_device) ZERO_TRY(queued::check_rule(*found.comm, *added.rule));
    const std::vector<Param> all = ZERO_TRY(read_params(params, count, true));
    const int32_t number = ZERO_TRY(found.register_params(std::move(added), all));
    if (group != nullptr) *group = number;
    return Status();
  });
}

zero_status zero_register_buffers(zero_optim* optim, const zero_buffer* buffers, size_t count) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(found.check_open());
    if (buffers == nullptr || count == 0) return bad_argument("no buffers were given");
    return found.register_buffers(ZERO_TRY(read_array<Buffer>(buffers, count, read_buffer)));
  });
}

zero_status zero_bind_params(zero_optim* optim, void* const* data, void* const* grads,
                             size_t count) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(found.check_open());
    if (count != found.params.size())
      return bad_argument(count, " addresses given for ", found.params.size(),
                          " registered parameters");
    return found.bind({data, data == nullptr ? 0 : count}, {grads, grads == nullptr ? 0 : count});
  });
}

zero_status zero_seal(zero_optim* optim) {
  return guard(command(optim, Operation::seal, {}, nullptr));
}

zero_status zero_free(zero_optim* optim) {
  if (optim == nullptr) return ZERO_OK;
  return guard([&]() -> Status {
    const std::shared_ptr<OptimHandle> handle = ZERO_TRY(find_handle(optim));
    const Turn turn(*handle);
    if (turn.again()) return turn.check();  // the call would continue with a rule without its ctx
    return take_handle(optim).failure();
  });
}

zero_status zero_group_set(zero_optim* optim, int32_t group, const char* name, double value) {
  const auto set = [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(name, "name"));
    if (is_loss_scale(name)) return set_loss_scale(found, group, value);
    ZERO_TRY(found.check_ended());
    return found.set(group, name, value);
  };
  return on_optim(optim, set, steps_of(name));
}

zero_status zero_group_get(const zero_optim* optim, int32_t group, const char* name,
                           double* value) {
  const auto get = [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(name, "name"));
    ZERO_TRY(check_out(value, "value"));
    if (is_loss_scale(name)) ZERO_TRY(check_all_groups(group));
    *value = is_loss_scale(name) ? found.state.loss_scale : ZERO_TRY(found.get(group, name));
    return Status();
  };
  return on_query(optim, get, steps_of(name));
}

zero_status zero_group_set_from(zero_optim* optim, int32_t group, const char* name,
                                const void* data, int32_t dtype) {
  const auto set = [&](Optimizer& found) -> Status {
    ZERO_TRY(check_out(name, "name"));
    if (!is_loss_scale(name)) ZERO_TRY(found.check_ended());
    const GivenSetting given =
        ZERO_TRY(read_given(found, data, dtype, text("setting '", name, "'")));
    return is_loss_scale(name) ? set_loss_scale_from(found, group, given)
                               : found.set_from(group, name, given);
  };
  return on_optim(optim, set, steps_of(name));
}

zero_status zero_param_set_trainable(zero_optim* optim, int64_t param, int32_t trainable) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    if (trainable != 0 && trainable != 1)
      return bad_argument("trainable is ", trainable, "; it must be 0 or 1");
    return found.set_trainable(param, trainable == 1);
  });
}
