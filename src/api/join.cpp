// SPDX-License-Identifier: Apache-2.0
// zero_join: a rank whose data has ended makes the calls of those that go on.
#include <vector>

#include "api/commands.h"
#include "api/options.h"
#include "step/broadcast.h"
#include "step/enter.h"
#include "step/step.h"
#include "step/take.h"

namespace {

using namespace zero;
using namespace zero::api;

/// Gradients of a window that was cut short, or none.
Result<std::vector<void*>> read_grads(const Optimizer& optim, const zero_join_options* given) {
  const zero_join_options options = ZERO_TRY(read_struct(given));
  if (options.stream != nullptr) return bad_argument("stream must be NULL on the host");
  if (options.grads == nullptr && options.grad_count == 0) return std::vector<void*>();
  ZERO_TRY(check_given(optim, options.grads, options.grad_count));
  return std::vector<void*>(options.grads, options.grads + options.grad_count);
}

/// The call of the others, with no gradient but those of a window cut short, which are used once.
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
  const Code code = perform(call, optim, told.operation, with, own).failure().code();
  if (gives && (code == ZERO_OK || code == ZERO_ERR_NONFINITE)) cut_short.clear();
}

/// Make the calls of the others until none is left to make one. A failure that leaves the comm
/// sound is theirs to handle; they know of it.
Status join(Optimizer& optim, const zero_join_options* options, int32_t* last_rank) {
  if (optim.options.uneven_inputs == ZERO_UNEVEN_OFF)
    return {ZERO_ERR_STATE, "zero_join needs zero_options.uneven_inputs, which is ZERO_UNEVEN_OFF"};
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
    // Also for a step that a broken comm ends early.
    if (Background* const steps = step_memory(found).background) (void)steps->complete();
    return status;
  });
}
