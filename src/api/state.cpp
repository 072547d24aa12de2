// SPDX-License-Identifier: Apache-2.0
// Single tensors of the state, steps by hand, and who owns what.
#include <span>

#include "api/commands.h"
#include "state/access.h"
#include "state/layout.h"
#include "step/queued/queue.h"
#include "step/reduce.h"

namespace {

using namespace zero;
using namespace zero::api;

Status get_grads(Optimizer& optim, const Range& range, void* values) {
  ZERO_TRY(check_sealed(optim, range.param));
  if (optim.phase != Phase::reduced)
    return wrong_state("no gradients are reduced: zero_reduce_grads comes first");
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

/// A number that each parameter has one of; a rule of the caller's may have state of that name.
bool is_scalar(const Optimizer& optim, std::string_view name) {
  return (name == "step" || name == "mu_product") && find_slot(*optim.options.rule, name) < 0;
}

Status check_scalar(const char* name, int64_t first, int64_t count, const void* value) {
  ZERO_TRY(check_out(value, "values"));
  if (first == 0 && count == 1) return Status();
  return bad_argument("'", name, "' is one number: first is 0 and count 1, not ", first, " and ",
                      count);
}

}  // namespace

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
      if (there < capacity) names[there] = slot_name(*found.options.rule, slot);
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
    if (name == nullptr || !is_scalar(found, name))
      return get_state(found, {param, first, count}, name, values);
    ZERO_TRY(check_scalar(name, first, count, values));
    *static_cast<double*>(values) = ZERO_TRY(get_scalar(found, param, name));
    return Status();
  });
}

zero_status zero_state_set(zero_optim* optim, int64_t param, const char* name, int64_t first,
                           int64_t count, const void* values) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    if (name == nullptr || !is_scalar(found, name))
      return set_state(found, {param, first, count}, name, values);
    ZERO_TRY(check_scalar(name, first, count, values));
    return set_scalar(found, param, name, *static_cast<const double*>(values));
  });
}

zero_status zero_state_gather(zero_optim* optim, int64_t param, const char* name, int32_t to,
                              void* values, size_t count) {
  return command(optim, Operation::state_gather, {.rank = to, .param = param, .words = name},
                 [&] { return Own{.values = values, .count = count}; });
}

zero_status zero_grad_get(const zero_optim* optim, int64_t param, int64_t first, int64_t count,
                          void* values) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    return get_grads(found, {param, first, count}, values);
  });
}

zero_status zero_rebalance(zero_optim* optim, const int32_t* owners, size_t count, void* stream) {
  const std::span<const int32_t> list(owners, owners == nullptr ? 0 : count);
  return command(optim, Operation::rebalance, {.list = std::as_bytes(list)}, [&] {
    Own own{.stream = stream};
    if (owners == nullptr && count > 0)
      own.local = bad_argument(count, " owners are announced, but owners is NULL");
    return own;
  });
}

zero_status zero_share_params(zero_optim* optim, int32_t flags, void* stream) {
  return command(optim, Operation::share_params, {.flags = flags}, stream);
}
