// SPDX-License-Identifier: Apache-2.0
#include "api/commands.h"

#include "base/text.h"
#include "state/collective.h"
#include "step/broadcast.h"
#include "step/by_hand.h"
#include "step/enter.h"
#include "step/step.h"

namespace zero::api {
namespace {

/// What a call may do with a stream that is being captured.
enum class Streams { none, plain, captured };

Streams streams_of(Operation operation) {
  switch (operation) {
    case Operation::reduce_grads:
    case Operation::clip_grad_norm:
    case Operation::clip_grad_value:
    case Operation::step:
      return Streams::captured;
    case Operation::broadcast_params:
    case Operation::broadcast_buffers:
    case Operation::rebalance:
    case Operation::share_params:
    case Operation::step_begin:
      return Streams::plain;
    default:
      return Streams::none;
  }
}

Status take_stream(Call& call, const Optimizer& optim, void* stream) {
  const Streams streams = streams_of(call.operation());
  if (streams == Streams::none) return Status();
  if (streams == Streams::plain) ZERO_TRY(check_stream(optim, stream));
  const uint64_t capture = ZERO_TRY(find_capture(optim, stream));
  if (capture != 0) ZERO_TRY(optim.comm->check_capture());
  call.take_stream(stream, capture);
  return Status();
}

template <class Number>
std::span<const Number> list_of(const Arguments& with) {
  return {reinterpret_cast<const Number*>(with.list.data()), with.list.size() / sizeof(Number)};
}

/// Save and load begin alike: sealed, between steps.
Status enter_state(Call& call, Optimizer& optim, Status local) {
  Entry entry;
  entry.local = std::move(local);
  if (entry.local.ok()) entry.local = optim.check_params();
  if (entry.local.ok()) entry.local = optim.check_open();
  return enter(call, optim, step_memory(optim), std::move(entry));
}

Status save(Call& call, Optimizer& optim, const Arguments& with) {
  Status local;
  if (optim.not_loaded)
    local = Status(ZERO_ERR_NOT_LOADED, "a load failed half way: there is no state to save");
  ZERO_TRY(enter_state(call, optim, std::move(local)));
  return save_state(call, optim, with.words, with.flags);
}

Status load(Call& call, Optimizer& optim, const Arguments& with) {
  ZERO_TRY(enter_state(call, optim, Status()));
  return load_state(call, optim, with.words, with.flags);
}

Status perform_all_but_step(Call& call, Optimizer& optim, Operation operation,
                            const Arguments& with, const Own& own) {
  const Grads grads{own.grads, own.grad_count, with.flags};
  switch (operation) {
    case Operation::seal:
      return seal_params(call, optim);
    case Operation::broadcast_params:
      return broadcast_params(call, optim, with.rank);
    case Operation::broadcast_buffers:
      return broadcast_buffers(call, optim, buffer_root(optim, with.rank));
    case Operation::reduce_grads:
      return reduce_grads(call, optim, grads);
    case Operation::clip_grad_norm:
      return clip_grad_norm(call, optim,
                            {with.limit, with.norm_type, with.some, list_of<int64_t>(with)},
                            own.norm, grads);
    case Operation::clip_grad_value:
      return clip_grad_value(call, optim, with.limit, grads);
    case Operation::step_begin:
      return step_begin(call, optim, with.flags);
    case Operation::share_params:
      return share_by_hand(call, optim, with.flags);
    case Operation::state_gather:
      return gather_state(call, optim, with.param, with.words, with.rank, own.values, own.count);
    case Operation::rebalance: {
      const std::span<const int32_t> owners = list_of<int32_t>(with);
      return rebalance(call, optim, owners.data(), owners.size());
    }
    case Operation::save:
      return save(call, optim, with);
    case Operation::load:
      return load(call, optim, with);
    default:
      return call.abort({ZERO_ERR_DESYNC, "another rank called what is no call on an optimizer"},
                        "roll call");
  }
}

}  // namespace

Result<Call> open_call(Optimizer& optim, Operation operation, const Arguments& with) {
  Call call = ZERO_TRY(optim.comm->begin(operation, optim.object));
  ZERO_TRY(call_roll(call, optim, with));
  return call;
}

Result<Code> perform(Call& call, Optimizer& optim, Operation operation, const Arguments& with,
                     const Own& own) {
  Status local = own.local;
  if (local.ok()) local = take_stream(call, optim, own.stream);
  if (!local.ok()) return refuse(call, optim, std::move(local));
  if (operation == Operation::step)
    return step(call, optim, {own.grads, own.grad_count, with.flags});
  ZERO_TRY(perform_all_but_step(call, optim, operation, with, own));
  return ZERO_OK;
}

/// Those of the training loop follow each other without waiting.
Steps steps_of(Operation operation) {
  return streams_of(operation) == Streams::captured ? Steps::behind : Steps::awaited;
}

}  // namespace zero::api
