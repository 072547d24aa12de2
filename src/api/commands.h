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

/// Do the operation, inside its call. ZERO_SKIPPED is a code with ok() true.
Result<Code> perform(Call& call, Optimizer& optim, Operation operation, const Arguments& with,
                     const Own& own);

Steps steps_of(Operation operation);

/// The C function of the operation; make_own() -> Own.
template <std::invocable MakeOwn>
zero_status command(zero_optim* optim, Operation operation, const Arguments& with,
                    const MakeOwn& make_own, ZERO_CALLER) noexcept {
  zero_status news = ZERO_OK;
  const auto call_it = [&](Optimizer& found) -> Status {
    Call call = ZERO_TRY(found.comm->begin(operation, found.object));
    ZERO_TRY(call_roll(call, found, with));
    news = ZERO_TRY(perform(call, found, operation, with, make_own()));
    return Status();
  };
  const zero_status status = on_optim(optim, call_it, steps_of(operation), caller);
  return status == ZERO_OK ? news : status;
}

/// Of one that takes nothing else of its own.
inline zero_status command(zero_optim* optim, Operation operation, const Arguments& with,
                           void* stream, ZERO_CALLER) noexcept {
  return command(
      optim, operation, with, [stream] { return Own{.stream = stream}; }, caller);
}

}  // namespace zero::api
