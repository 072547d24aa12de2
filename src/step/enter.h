// SPDX-License-Identifier: Apache-2.0
// How a collective call on an optimizer begins: everybody is here, agrees, and knows where things
// are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// What this rank brings to the call.
struct Entry {
  Status local{};       // its own reason to refuse, carried to the vote
  std::string args{};   // lines that must be the same on every rank
  bool grads = false;   // the call uses gradients: `memory.grads` are this rank's
  bool begins = false;  // gradients are to come, to where the registered ones are
  bool keeps = false;   // it returns before they are used, so foreign memory cannot hold the sums
  bool sums = false;    // it writes sums down before it uses them
};

/// Vote, seal what is not sealed, compare phases, settings and arguments, and see to it that every
/// rank's placements can be read. On success nothing of the optimizer has changed but for the seal.
Status enter(Call& call, Optimizer& optim, Entry entry);

/// Fail this rank's part of a call that the others enter: they learn why.
Status refuse(Call& call, Optimizer& optim, Status why);

}  // namespace zero
