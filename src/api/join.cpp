// SPDX-License-Identifier: Apache-2.0
// zero_join: a rank whose data has ended makes the calls of those that go on.
#include <span>
#include <vector>

#include "api/commands.h"
#include "api/options.h"
#include "step/broadcast.h"
#include "step/enter.h"
#include "step/step.h"
#include "step/tables.h"

namespace {

using namespace zero;
using namespace zero::api;

/// What a rank that has joined brings to the calls of the others.
class Service {
 public:
  explicit Service(Optimizer& optim) : optim_(optim), absent_(optim.params.size(), nullptr) {}

  /// Gradients of a window that was cut short.
  Status take(const zero_join_options* given) {
    const zero_join_options options = ZERO_TRY(read_struct(given));
    if (options.stream != nullptr) return {ZERO_ERR_ARGUMENT, "stream must be NULL on the host"};
    if (options.grads == nullptr && options.grad_count == 0) return {};
    ZERO_TRY(check_given(optim_, options.grads, options.grad_count));
    cut_short_.assign(options.grads, options.grads + options.grad_count);
    return {};
  }

  /// What `call`, which nobody has opened, becomes.
  Result<Told> hear(Call& call, const Status& local) {
    Told told = ZERO_TRY(
        zero::hear(call, optim_, {.fresh = fresh_, .contributes = !cut_short_.empty()}, local));
    fresh_ = false;
    return told;
  }

  /// The call of the others, with no gradient but those of a window cut short, which are used once.
  Status serve(Call& call, const Told& told) {
    ZERO_TRY(refused(call, told));
    const bool reduces = zero::reduces(optim_, {nullptr, 0, told.arguments.flags});
    Status status = make(call, told);
    const bool used = status.ok() || status.code() == ZERO_ERR_NONFINITE;
    if (used && reduces && takes_grads(told.operation)) cut_short_.clear();
    return status;
  }

 private:
  Status refused(Call& call, const Told& told) {
    const Status status = check_served(optim_, told.operation, told.arguments);
    return status.ok() ? Status() : refuse(call, optim_, status);
  }

  static bool takes_grads(Operation operation) {
    return operation == Operation::reduce_grads || operation == Operation::step ||
           operation == Operation::clip_grad_norm || operation == Operation::clip_grad_value;
  }

  Status make(Call& call, const Told& told) {
    Arguments with = told.arguments;
    with.words = told.has_words ? told.words.c_str() : nullptr;
    with.list = told.list;
    Own own;
    if (takes_grads(told.operation) && reduces(optim_, {nullptr, 0, with.flags})) {
      const std::vector<void*>& given = cut_short_.empty() ? absent_ : cut_short_;
      own.grads = given.data();
      own.grad_count = given.size();
    }
    return perform(call, optim_, told.operation, with, own).failure();
  }

  Optimizer& optim_;
  std::vector<void*> absent_;     // a null for each parameter
  std::vector<void*> cut_short_;  // empty once used
  bool fresh_ = true;
};

Status check_option(const Optimizer& optim) {
  if (optim.options.uneven_inputs != ZERO_UNEVEN_OFF) return {};
  return {ZERO_ERR_STATE, "zero_join needs zero_options.uneven_inputs, which is ZERO_UNEVEN_OFF"};
}

/// Make the calls of the others until none is left to make one. A failure that leaves the comm
/// sound is theirs to handle; they know of it.
Status join(Optimizer& optim, const zero_join_options* options, int32_t* last_rank) {
  ZERO_TRY(check_option(optim));
  Service service(optim);
  Status local = optim.check_params();
  if (local.ok() && optim.announces()) local = optim.check_open();
  if (local.ok()) local = service.take(options);
  if (!local.ok()) local = std::move(local).within("zero_join");
  for (;;) {
    Call call = ZERO_TRY(optim.comm->begin(Operation::join, optim.object));
    auto told = service.hear(call, local);
    if (!told.ok()) {
      if (told.failure().code() != ZERO_ERR_PEER) return told.failure();
      continue;  // another rank could not join
    }
    if (told->operation != Operation::join) {
      (void)service.serve(call, *told);
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
    // Of a step that a broken comm ends early, too.
    if (Background* const steps = step_memory(found).background) (void)steps->complete();
    return status;
  });
}
