// SPDX-License-Identifier: Apache-2.0
// What every exchange begins with: a record of a fixed size, which says where its rank is. So even
// ranks that disagree about everything else exchange the same number of bytes and can tell each
// other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "comm/clocks.h"
#include "comm/comm.h"

namespace zero {

enum ExchangeKind : uint32_t { kExchange = 1, kCombine, kGather, kBroadcast };

/// What must be the same on every rank. It has no padding, because it is compared as bytes.
struct ExchangeKey {
  uint32_t world = 0;
  Operation operation = Operation::create;
  uint32_t object = 0;
  uint32_t exchange = 0;
  uint64_t call = 0;
  uint64_t bytes = 0;  // every rank sends so many
  uint32_t kind = kExchange;
  int32_t root = -1;
  char phase[32] = {};
};
static_assert(std::has_unique_object_representations_v<ExchangeKey>);

/// Returns "rank 1 <what it does>, rank 0 <what that does>", by the first thing that tells them
/// apart.
std::string desync_sentence(int32_t rank, const ExchangeKey& a, int32_t other,
                            const ExchangeKey& b);

/// What a rank is in.
struct ExchangeSaid {
  int32_t rank = -1;  // -1: nobody
  uint32_t unused = 0;
  ExchangeKey key;

  bool differs_from(const ExchangeSaid& other) const {
    return memcmp(&key, &other.key, sizeof key) != 0;
  }
};

/// What some ranks say together.
struct ExchangeHeader {
  static constexpr uint32_t kMagic = 0x345a7264;  // changes with the layout

  uint32_t magic = kMagic;
  uint16_t traces = 0;       // some rank: 1
  uint16_t ahead = 0;        // some rank has come to the next exchange as well: 1
  ExchangeSaid lowest = {};  // of the lowest rank
  ExchangeSaid odd = {};     // of the lowest rank that is in something else
  // Of the lowest rank that has failed, in a vote.
  int32_t failed = -1;
  int32_t code = ZERO_OK;
  uint64_t why_bytes = 0;
  uint64_t longest = 0;  // text of a rank, in a gather
  uint64_t gives = 0;    // 1: the payload is there, in a broadcast
  Stamps stamps = {};    // of one rank

  void add(const ExchangeHeader& other);

 private:
  void add_said(const ExchangeHeader& other);
};

/// What each rank sends in every first exchange, of a fixed size. A payload that fits needs no
/// other exchange.
struct ExchangeRecord {
  static constexpr size_t kPayloadBytes = 1024 - sizeof(ExchangeHeader);
  ExchangeHeader header;
  std::byte payload[kPayloadBytes];
};

}  // namespace zero
