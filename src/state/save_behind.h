// SPDX-License-Identifier: Apache-2.0
// zero_state_save_begin: a save whose files a thread writes while training goes on, of the state as
// it was at the beginning.
#pragma once

#include <string_view>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Fails with ZERO_ERR_BUSY if a save has begun that votes have not told to be a checkpoint.
Status check_no_save(Optimizer& optim);

/// Begins a save. Inside a collective Call that has entered: parameters bound and sealed,
/// Phase::open.
Status begin_save(Call& call, Optimizer& optim, std::string_view directory, int32_t flags);

/// Returns whether entry votes have told that the save has ended or failed, on all ranks alike.
Result<bool> poll_save(Optimizer& optim);

/// Waits for the end of the save, and forgets it. Inside a collective Call that has entered.
Status await_save(Call& call, Optimizer& optim);

/// Returns `why`, for which a wait for the save could not begin. If the comm is broken, gives the
/// save up, and says in the text if its checkpoint may appear all the same.
Status give_up_save(Optimizer& optim, Status why);

}  // namespace zero
