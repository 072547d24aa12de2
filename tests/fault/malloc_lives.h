// SPDX-License-Identifier: Apache-2.0
// Whole lives of a rank through the public calls, from its comm to the last free. Together they
// make every kind of call.
#pragma once

#include <span>
#include <string>

#include "zero.h"

namespace zero::test {

/// The end of a life: its first failed call, or ZERO_OK.
struct LifeEnd {
  zero_status status = ZERO_OK;
  std::string call, text;
};

/// The arguments of a life.
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

/// Meets again under another name, and takes a step. Every rank must still be able to do this.
LifeEnd meet_again(const LifeOf& of);

}  // namespace zero::test
