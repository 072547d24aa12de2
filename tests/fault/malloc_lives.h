// SPDX-License-Identifier: Apache-2.0
// Whole lives of a rank through the public calls, from its comm to the last free: between them they
// make every kind of call.
#pragma once

#include <span>
#include <string>

#include "zero.h"

namespace zero::test {

/// How a life ended: its first call that failed, or ZERO_OK.
struct LifeEnd {
  zero_status status = ZERO_OK;
  std::string call, text;
};

/// What a life is given.
struct LifeOf {
  int32_t rank, world;
  std::string name;               // of a local comm; the same on all ranks
  std::string folder;             // for checkpoints; the same on all ranks
  zero_comm_functions functions;  // of a user comm of one rank
  void* seat;
  int64_t rendezvous_ms;
};

struct Life {
  const char* name;
  LifeEnd (*live)(const LifeOf& of);
};

std::span<const Life> all_lives();

/// Meet again under another name and make a step: what every rank must still be able to do.
LifeEnd meet_again(const LifeOf& of);

}  // namespace zero::test
