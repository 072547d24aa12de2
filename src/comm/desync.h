// SPDX-License-Identifier: Apache-2.0
// What every exchange says about where its rank is, and the sentence for ranks that are in
// different places.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

namespace zero {

enum Kind : uint32_t { kExchange = 1, kVote, kGather, kBroadcast };

/// What must be the same on every rank. No padding: compared as bytes.
struct Agreed {
  uint32_t world;
  uint32_t operation;
  uint32_t object;
  uint32_t exchange;
  uint64_t call;
  uint64_t bytes;
  uint32_t kind;
  int32_t root;
  char phase[32];
};
static_assert(std::has_unique_object_representations_v<Agreed>);

/// "rank 1 <what it does>, rank 0 <what that does>", by the first thing that tells them apart.
std::string desync_sentence(int32_t rank, const Agreed& a, int32_t other, const Agreed& b);

}  // namespace zero
