// SPDX-License-Identifier: Apache-2.0
// Begins a collective call on an optimizer. All ranks compare what must be the same, and find out
// where the tensors of the other ranks are.
#pragma once

#include <cstdint>
#include <string>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// What this rank passes to enter().
struct Entry {
  Status local{};  // this rank's own failure, which it reports in the vote
  // These must be the same on every rank.
  std::string args{};  // the arguments of the call, as lines
  bool captured = false;
  int32_t reduce_flags = -1;  // -1: the call reduces nothing

  bool grads = false;    // the call uses gradients; this rank's are in `memory.grads`
  bool begins = false;   // gradients will come later, in the memory of the registered ones
  bool keeps = false;    // sums outlive the call, so they cannot be stored outside arenas
  bool sums = false;     // the call stores sums before it uses them
  bool updates = false;  // the call is a step that uses new gradients
  bool fused = false;    // parameters may change directly after the last of these votes
};

/// Votes, seals what is not sealed, compares phases, settings and arguments, and ensures that every
/// rank's placements can be read. Changes nothing of the optimizer except through the seal. If
/// StepMemory::ready is true afterwards, the call can change tensors without another vote, and
/// nothing may fail on a single rank any more.
Status enter(Call& call, Optimizer& optim, Entry entry);

/// Enters a call that the other ranks enter, in order to make it fail with `why`.
Status refuse(Call& call, Optimizer& optim, Status why);

}  // namespace zero
