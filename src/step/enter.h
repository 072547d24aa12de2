// SPDX-License-Identifier: Apache-2.0
// The beginning of a collective call on an optimizer: all ranks are here, agree, and know where
// things are.
#pragma once

#include <cstdint>
#include <string>

#include "comm/comm.h"
#include "step/memory.h"

namespace zero {

/// This rank's part of the entry.
struct Entry {
  Status local{};  // its own reason to refuse, carried to the vote
  // These must be the same on every rank.
  std::string args{};  // in lines
  bool captured = false;
  int32_t reduce_flags = -1;  // -1: the call reduces nothing

  bool grads = false;   // the call uses gradients: `memory.grads` are this rank's
  bool begins = false;  // gradients will come later, in the memory of the registered ones
  bool keeps = false;   // the call returns before they are used, so foreign memory cannot hold sums
  bool sums = false;    // the call writes sums down before it uses them
  bool updates = false;  // the call is a step from gradients to parameters
  bool fused = false;    // and parameters change right behind the last of these votes
};

/// Votes, seals what is not sealed, compares phases, settings and arguments, and makes sure that
/// every rank's placements can be read. On success it has changed nothing of the optimizer but by
/// the seal. Where StepMemory::ready is true then, the call needs no other vote before it changes
/// anything, and nothing may fail on one rank alone any more.
Status enter(Call& call, Optimizer& optim, Entry entry);

/// Fails this rank's part of a call that the others enter, and tells them why.
Status refuse(Call& call, Optimizer& optim, Status why);

}  // namespace zero
