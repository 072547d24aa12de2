// SPDX-License-Identifier: Apache-2.0
#include "api/commands.h"

#include <algorithm>
#include <vector>

#include "api/options.h"
#include "state/collective.h"
#include "state/save_behind.h"
#include "step/broadcast.h"
#include "step/enter.h"
#include "step/step.h"
#include "step/take.h"

namespace zero::api {
namespace {

/// The streams that a call accepts: none, those that are not being captured, or all.
enum class Streams { none, plain, captured };

Grads grads_of(const Made& made) { return {made.own.grads, made.own.grad_count, made.with.flags}; }

template <class Number>
std::span<const Number> list_of(const Arguments& with) {
  return {reinterpret_cast<const Number*>(with.list.data()), with.list.size() / sizeof(Number)};
}

Status perform_step(Made& made) {
  made.code = ZERO_TRY(step(made.call, made.optim, grads_of(made)));
  return Status();
}

/// Enters a save or a load, which is only allowed between steps.
Status enter_state(Made& made, Status local) {
  if (local.ok()) local = made.optim.check_params();
  if (local.ok()) local = made.optim.check_open();
  return enter(made.call, made.optim, {.local = std::move(local)});
}

Status save(Made& made) {
  Status local = check_no_save(made.optim);
  if (made.optim.not_loaded)
    local = Status(ZERO_ERR_NOT_LOADED, "a load failed halfway: there is no state to save");
  ZERO_TRY(enter_state(made, std::move(local)));
  return (made.call.operation() == Operation::save ? save_state : begin_save)(
      made.call, made.optim, made.with.words, made.with.flags);
}

Status load(Made& made) {
  ZERO_TRY(enter_state(made, Status()));
  return load_state(made.call, made.optim, made.with.words, made.with.flags);
}

struct Command {
  Operation operation;
  Streams streams;
  Perform perform;
};

constexpr Command kCommands[] = {
    {Operation::seal, Streams::none, [](Made& made) { return seal_params(made.call, made.optim); }},
    {Operation::broadcast_params, Streams::plain,
     [](Made& made) { return broadcast_params(made.call, made.optim, made.with.rank); }},
    {Operation::broadcast_buffers, Streams::plain,
     [](Made& made) {
       return broadcast_buffers(made.call, made.optim, buffer_root(made.optim, made.with.rank));
     }},
    {Operation::reduce_grads, Streams::captured,
     [](Made& made) { return reduce_grads(made.call, made.optim, grads_of(made)); }},
    {Operation::clip_grad_norm, Streams::captured,
     [](Made& made) {
       const Arguments& with = made.with;
       return clip_grad_norm(made.call, made.optim,
                             {with.limit, with.norm_type, with.some, list_of<int64_t>(with)},
                             made.own.norm, grads_of(made));
     }},
    {Operation::clip_grad_value, Streams::captured,
     [](Made& made) {
       return clip_grad_value(made.call, made.optim, made.with.limit, grads_of(made));
     }},
    {Operation::step_begin, Streams::plain,
     [](Made& made) { return step_begin(made.call, made.optim, made.with.flags); }},
    {Operation::step, Streams::captured, perform_step},
    {Operation::share_params, Streams::plain,
     [](Made& made) { return share_by_hand(made.call, made.optim, made.with.flags); }},
    {Operation::state_gather, Streams::none,
     [](Made& made) {
       return gather_state(made.call, made.optim, made.with.param, made.with.words, made.with.rank,
                           made.own.values, made.own.count);
     }},
    {Operation::rebalance, Streams::plain,
     [](Made& made) { return rebalance(made.call, made.optim, list_of<int32_t>(made.with)); }},
    {Operation::save, Streams::none, save},
    {Operation::save_begin, Streams::none, save},
    {Operation::save_wait, Streams::none,
     [](Made& made) {
       Status entered = enter(made.call, made.optim, {});
       if (!entered.ok()) return give_up_save(made.optim, std::move(entered));
       return await_save(made.call, made.optim);
     }},
    {Operation::load, Streams::none, load}};

/// Returns nullptr if the operation is not a call on an optimizer.
const Command* find_command(Operation operation) {
  const auto found = std::ranges::find(kCommands, operation, &Command::operation);
  return found == std::end(kCommands) ? nullptr : &*found;
}

Status take_stream(Call& call, const Optimizer& optim, Streams streams, void* stream) {
  if (streams == Streams::none) return Status();
  if (streams == Streams::plain) ZERO_TRY(check_stream(optim, stream));
  const uint64_t capture = ZERO_TRY(find_capture(optim, stream));
  if (capture != 0) ZERO_TRY(optim.comm->check_capture());
  call.take_stream(stream, capture);
  return Status();
}

}  // namespace

Result<Call> open_call(Optimizer& optim, Operation operation, const Arguments& with) {
  const auto open = [&]() -> Result<Call> {
    Call call = ZERO_TRY(optim.comm->begin(operation, optim.object));
    ZERO_TRY(call_roll(call, optim, with));
    return call;
  };
  Result<Call> call = open();
  if (call.ok() || operation != Operation::save_wait) return call;
  return give_up_save(optim, std::move(call).status());
}

Result<Perform> get_ready(Made& made, Operation operation) {
  const Command* const command = find_command(operation);
  if (command == nullptr)
    return made.call.abort({ZERO_ERR_DESYNC, "another rank's call is not a call on an optimizer"},
                           "roll call");
  Status local = made.own.local;
  if (local.ok()) local = take_stream(made.call, made.optim, command->streams, made.own.stream);
  if (!local.ok()) return refuse(made.call, made.optim, std::move(local));
  return command->perform;
}

bool takes_grads(Operation operation) {
  const Command* const command = find_command(operation);
  return command != nullptr && command->streams == Streams::captured;
}

}  // namespace zero::api

// ---- zero_join: a rank whose data has ended makes the calls of the ranks that go on.

namespace {

using namespace zero;
using namespace zero::api;

/// Returns the gradients of a window that was cut short, or none.
Result<std::vector<void*>> read_grads(const Optimizer& optim, const zero_join_options* given) {
  const zero_join_options options = ZERO_TRY(read_struct(given));
  if (options.stream != nullptr) return bad_argument("stream must be NULL on the host");
  if (options.grads == nullptr && options.grad_count == 0) return std::vector<void*>();
  ZERO_TRY(check_given(optim, options.grads, options.grad_count));
  return std::vector<void*>(options.grads, options.grads + options.grad_count);
}

/// Makes the other ranks' call. Its only gradients are those of a window that was cut short, once.
void serve(Call& call, Optimizer& optim, const Told& told, std::vector<void*>& cut_short) {
  if (Status why = check_served(optim, told.operation, told.arguments); !why.ok())
    return (void)refuse(call, optim, std::move(why));
  Arguments with = told.arguments;
  with.words = told.has_words ? told.words.c_str() : nullptr;
  with.list = told.list;
  const bool gives = takes_grads(told.operation) && reduces(optim, {nullptr, 0, with.flags});
  std::vector<void*> grads;
  if (gives) grads = cut_short.empty() ? std::vector<void*>(optim.params.size()) : cut_short;
  const Own own{.grads = gives ? grads.data() : nullptr, .grad_count = grads.size()};
  Made made{call, optim, with, own};
  const Result<Perform> perform = get_ready(made, told.operation);
  const Code code = perform.ok() ? (*perform)(made).code() : perform.failure().code();
  if (gives && (code == ZERO_OK || code == ZERO_ERR_NONFINITE)) cut_short.clear();
}

/// Makes the calls of the other ranks until no rank makes calls any more. It ignores failures that
/// do not abort the comm, because the other ranks get and handle them.
Status join(Optimizer& optim, const zero_join_options* options, int32_t* last_rank) {
  if (optim.options.uneven_inputs == ZERO_UNEVEN_OFF)
    return wrong_state("zero_join needs zero_options.uneven_inputs, which is ZERO_UNEVEN_OFF");
  std::vector<void*> cut_short;
  const auto prepare = [&]() -> Status {
    ZERO_TRY(optim.check_params());
    if (optim.announces()) ZERO_TRY(optim.check_open());
    cut_short = ZERO_TRY(read_grads(optim, options));
    return Status();
  };
  const Status local = prepare().within("zero_join");
  for (bool fresh = true;;) {
    Call call = ZERO_TRY(optim.comm->begin(Operation::join, optim.object));
    auto told = hear(call, optim, {.fresh = fresh, .contributes = !cut_short.empty()}, local);
    if (!told.ok()) {
      if (told.failure().code() != ZERO_ERR_PEER) return told.failure();
      continue;  // another rank could not join
    }
    fresh = false;
    if (told->operation != Operation::join) {
      serve(call, optim, *told, cut_short);
      continue;
    }
    if (!optim.buffers.empty()) ZERO_TRY(broadcast_buffers(call, optim, told->last_rank));
    if (last_rank != nullptr) *last_rank = told->last_rank;
    return {};
  }
}

}  // namespace

zero_status zero_join(zero_optim* optim, const zero_join_options* options, int32_t* last_rank) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    const Status status = join(found, options, last_rank);
    // A step that ends in the background must end here, even if join() has failed.
    if (Background* const steps = step_memory(found).background) (void)steps->complete();
    return status;
  });
}
