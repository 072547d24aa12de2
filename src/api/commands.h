// SPDX-License-Identifier: Apache-2.0
// The collective calls on an optimizer. Each is described once, for its C function and for a rank
// that has joined and makes it with the others.
#pragma once

#include <concepts>
#include <cstddef>

#include "api/guard.h"
#include "comm/comm.h"
#include "optim/optimizer.h"
#include "step/roll_call.h"

namespace zero::api {

/// A rank's own input to a call, beside the arguments that all ranks share.
struct Own {
  Status local{};  // its own reason to refuse
  void* stream = nullptr;
  void* const* grads = nullptr;
  size_t grad_count = 0;
  void* values = nullptr;  // room for `count` elements
  size_t count = 0;
  double* norm = nullptr;
};

/// Begins a call. Every rank that has joined hears of it.
Result<Call> open_call(Optimizer& optim, Operation operation, const Arguments& with);

/// Does the operation, inside its call. Returns ZERO_OK or ZERO_SKIPPED, with ok() true for both.
Result<Code> perform(Call& call, Optimizer& optim, Operation operation, const Arguments& with,
                     const Own& own);

/// True for the calls of the training loop that reduce gradients if none are reduced yet. Such
/// calls follow each other without waiting.
bool takes_grads(Operation operation);

/// The body of the operation's C function. make_own() returns Own.
template <std::invocable MakeOwn>
zero_status command(zero_optim* optim, Operation operation, const Arguments& with,
                    const MakeOwn& make_own, ZERO_CALLER) noexcept {
  const auto make = [&](Optimizer& found) -> Result<Code> {
    Call call = ZERO_TRY(open_call(found, operation, with));
    return perform(call, found, operation, with, make_own());
  };
  return on_optim(optim, make, takes_grads(operation) ? Steps::behind : Steps::awaited, caller);
}

/// The same for an operation that takes nothing but a stream of its own.
inline zero_status command(zero_optim* optim, Operation operation, const Arguments& with,
                           void* stream, ZERO_CALLER) noexcept {
  return command(
      optim, operation, with, [stream] { return Own{.stream = stream}; }, caller);
}

}  // namespace zero::api
