// SPDX-License-Identifier: Apache-2.0
// Implements zero_state_save_begin: a thread writes the state as it was at that call, while
// training goes on.
#pragma once

#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Fails with ZERO_ERR_BUSY if a save has begun and no vote has shown that it became a checkpoint.
Status check_no_save(Optimizer& optim);

/// Begins a save. Must run inside a collective Call that has entered, with parameters bound and
/// sealed, in Phase::open.
Status begin_save(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

/// Returns whether entry votes have shown, on all ranks alike, that the save has ended or failed.
Result<bool> poll_save(Optimizer& optim);

/// Waits for the end of the save, and forgets it. Must run in a collective Call that has entered.
Status await_save(Call& call, Optimizer& optim);

/// Returns `why`, the reason why a wait for the save could not begin. If the comm is broken, gives
/// up the save, and says in the text if its checkpoint may still appear.
Status give_up_save(Optimizer& optim, Status why);

}  // namespace zero
