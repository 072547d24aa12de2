// SPDX-License-Identifier: Apache-2.0
// How a collective call on an optimizer begins: everybody is here, agrees, and knows where things
// are.
#pragma once

#include <string>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// What this rank brings to the call.
struct Entry {
  Status local;        // its own reason to refuse, carried to the vote
  std::string args;    // lines that must be the same on every rank
  bool grads = false;  // the call uses gradients: `memory.grads` are this rank's
  bool keeps = false;  // it returns before they are used, so foreign memory cannot hold the sums
  bool sums = false;   // it writes sums down before it uses them
  bool adds = false;   // to the sums of calls before
};

/// Vote, seal what is not sealed, compare phases, settings and arguments, and see to it that every
/// rank's placements can be read. On success nothing of the optimizer has changed but for the seal.
Status enter(Call& call, Optimizer& optim, StepMemory& memory, Entry entry);

/// Fail this rank's part of a call that the others enter: they learn why.
Status refuse(Call& call, Optimizer& optim, Status why);

/// Compare the registration over all ranks, fix the plan, and allocate state and tables. All ranks
/// or none.
Status seal(Call& call, Optimizer& optim);

/// After the plan has changed: nothing lies where it did.
void forget_places(Optimizer& optim, StepMemory& memory);

/// Make the parameters, as they stand, every rank's masters, if there are any.
Status retake_masters(Call& call, Optimizer& optim);

/// Make every rank's parameter placements readable, inside a call that has entered otherwise.
Status sync_placements(Call& call, Optimizer& optim, StepMemory& memory);

}  // namespace zero
