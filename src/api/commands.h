// SPDX-License-Identifier: Apache-2.0
// The collective calls on an optimizer, each described once: for the C function, and for a rank
// that has joined and makes it with the others.
#pragma once

#include <concepts>
#include <cstddef>

#include "api/guard.h"
#include "comm/comm.h"
#include "optim/optimizer.h"
#include "step/roll_call.h"

namespace zero::api {

/// What a rank brings to a call beside the arguments that all ranks share.
struct Own {
  Status local{};  // its own reason to refuse
  void* stream = nullptr;
  void* const* grads = nullptr;
  size_t grad_count = 0;
  void* values = nullptr;  // room for `count` elements
  size_t count = 0;
  double* norm = nullptr;
};

/// Begin a call, of which every rank that has joined hears.
Result<Call> open_call(Optimizer& optim, Operation operation, const Arguments& with);

/// Do the operation, inside its call. ZERO_SKIPPED is a code with ok() true.
Result<Code> perform(Call& call, Optimizer& optim, Operation operation, const Arguments& with,
                     const Own& own);

/// True for the calls of the training loop that reduce gradients, where none are yet: those that
/// follow each other without waiting.
bool takes_grads(Operation operation);

/// The C function of the operation; make_own() -> Own.
template <std::invocable MakeOwn>
zero_status command(zero_optim* optim, Operation operation, const Arguments& with,
                    const MakeOwn& make_own, ZERO_CALLER) noexcept {
  const auto make = [&](Optimizer& found) -> Result<Code> {
    Call call = ZERO_TRY(open_call(found, operation, with));
    return perform(call, found, operation, with, make_own());
  };
  return on_optim(optim, make, takes_grads(operation) ? Steps::behind : Steps::awaited, caller);
}

/// The C function of an operation that takes nothing else of its own.
inline zero_status command(zero_optim* optim, Operation operation, const Arguments& with,
                           void* stream, ZERO_CALLER) noexcept {
  return command(
      optim, operation, with, [stream] { return Own{.stream = stream}; }, caller);
}

}  // namespace zero::api
