// SPDX-License-Identifier: Apache-2.0
// What every exchange says about where its rank is, and the sentence for ranks that are in
// different places.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/text.h"
#include "comm/comm.h"

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

inline const char* kind_verb(uint32_t kind) {
  switch (kind) {
    case kExchange:
      return "exchanges";
    case kVote:
      return "votes";
    case kGather:
      return "gathers";
    case kBroadcast:
      return "broadcasts";
  }
  return "does something unknown";
}

inline std::string place_of(const Agreed& a) {
  const size_t length = strnlen(a.phase, sizeof a.phase);
  return text(operation_name(static_cast<Operation>(a.operation)), " at '",
              std::string_view(a.phase, length), "'");
}

/// "rank 1 <what it does>, rank 0 <what that does>", by the first thing that tells them apart.
inline std::string desync_sentence(int32_t rank, const Agreed& a, int32_t other, const Agreed& b) {
  const auto both = [&](auto&& describe) {
    return text("rank ", rank, " ", describe(a), ", rank ", other, " ", describe(b));
  };
  const auto name = [](const Agreed& x) {
    return operation_name(static_cast<Operation>(x.operation));
  };
  if (a.world != b.world)
    return both([](const Agreed& x) { return text("has a comm of ", x.world, " ranks"); });
  if (a.operation != b.operation)
    return both([&](const Agreed& x) { return text("called ", name(x)); });
  if (a.object != b.object)
    return both(
        [&](const Agreed& x) { return text("called ", name(x), " on its optimizer ", x.object); });
  if (a.call != b.call)
    return both([&](const Agreed& x) {
      return text("is in its collective call ", x.call, " (", name(x), ")");
    });
  if (a.exchange != b.exchange || a.kind != b.kind || memcmp(a.phase, b.phase, sizeof a.phase) != 0)
    return both([](const Agreed& x) {
      return text(kind_verb(x.kind), " in ", place_of(x), " (exchange ", x.exchange, ")");
    });
  if (a.bytes != b.bytes)
    return both([](const Agreed& x) { return text("sends ", x.bytes, " bytes in ", place_of(x)); });
  return both([](const Agreed& x) {
    return text("expects the data of rank ", x.root, " in ", place_of(x));
  });
}

}  // namespace zero
