// SPDX-License-Identifier: Apache-2.0
// Describes each collective call on an optimizer once, for its C function and for a rank that has
// joined and makes it with the others.
#pragma once

#include <concepts>
#include <cstddef>

#include "api/guard.h"
#include "comm/comm.h"
#include "optim/optimizer.h"
#include "step/roll_call.h"

namespace zero::api {

/// A rank's own input to a call, besides the arguments that all ranks share.
struct Own {
  Status local{};  // this rank's own reason to refuse
  void* stream = nullptr;
  void* const* grads = nullptr;
  size_t grad_count = 0;
  void* values = nullptr;  // room for `count` elements
  size_t count = 0;
  double* norm = nullptr;
};

/// Begins a call, and announces it to every rank that has joined.
Result<Call> open_call(Optimizer& optim, Operation operation, const Arguments& with);

/// One call, made by its C function or by a rank that has joined.
struct Made {
  Call& call;
  Optimizer& optim;
  const Arguments& with;
  const Own& own;
  Code code = ZERO_OK;  // of the call if it succeeds: ZERO_OK or ZERO_SKIPPED
};
using Perform = Status (*)(Made& made);

/// Takes the call's stream and returns the function that performs the operation. If that fails,
/// refuses the call on every rank.
Result<Perform> get_ready(Made& made, Operation operation);

/// Returns true for the calls of the training loop that reduce gradients if none have been reduced
/// yet. Such calls follow one another without waiting.
bool takes_grads(Operation operation);

/// Returns the body of the operation's C function, for guard(). make_own() returns Own. `with` must
/// outlive the body.
template <std::invocable MakeOwn>
[[nodiscard]] auto command(zero_optim* optim, Operation operation, const Arguments& with,
                           MakeOwn make_own) {
  return [optim, operation, &with, make_own]() -> Result<Code> {
    OptimTurn turn(optim, takes_grads(operation) ? Steps::queued : Steps::awaited);
    ZERO_TRY(turn.entered());
    Call call = ZERO_TRY(open_call(turn.optim(), operation, with));
    const Own own = make_own();
    Made made{call, turn.optim(), with, own};
    const Perform perform = ZERO_TRY(get_ready(made, operation));
    ZERO_TRY(perform(made));
    return turn.leave(Result<Code>(made.code));
  };
}

/// Does the same for an operation whose only own input is a stream.
[[nodiscard]] inline auto command(zero_optim* optim, Operation operation, const Arguments& with,
                                  void* stream) {
  return command(optim, operation, with, [stream] { return Own{.stream = stream}; });
}

}  // namespace zero::api
