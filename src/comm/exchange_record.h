// SPDX-License-Identifier: Apache-2.0
// The record of a fixed size that begins every exchange and describes its rank's position. Even
// ranks that disagree about everything else exchange the same number of bytes, and can say how.
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

/// Fields that must be the same on every rank. They are compared as bytes, without padding.
struct ExchangeKey {
  uint32_t world = 0;
  Operation operation = Operation::create;
  uint32_t object = 0;
  uint32_t exchange = 0;
  uint64_t call = 0;
  uint64_t bytes = 0;  // sent by each rank
  uint32_t kind = kExchange;
  int32_t root = -1;
  char phase[32] = {};
};
static_assert(std::has_unique_object_representations_v<ExchangeKey>);

/// Returns "rank 1 <what it does>, rank 0 <what it does>", based on the first field that differs.
std::string desync_sentence(int32_t rank, const ExchangeKey& a, int32_t other,
                            const ExchangeKey& b);

/// A rank and the exchange that it is in.
struct ExchangeSaid {
  int32_t rank = -1;  // -1: no rank
  uint32_t unused = 0;
  ExchangeKey key;

  bool differs_from(const ExchangeSaid& other) const {
    return memcmp(&key, &other.key, sizeof key) != 0;
  }
};

/// Combined information about some of the ranks.
struct ExchangeHeader {
  static constexpr uint32_t kMagic = 0x345a7264;  // changes with the layout

  uint32_t magic = kMagic;
  uint16_t traces = 0;       // 1 if some rank traces
  uint16_t ahead = 0;        // 1 if some rank has also joined the next exchange
  ExchangeSaid lowest = {};  // of the lowest rank
  ExchangeSaid odd = {};     // of the lowest rank that is in another exchange
  // Of the lowest rank that failed, in a vote.
  int32_t failed = -1;
  int32_t code = ZERO_OK;
  uint64_t why_bytes = 0;
  uint64_t longest = 0;  // longest text of a rank, in a gather
  uint64_t gives = 0;    // 1 if the payload is present, in a broadcast
  Stamps stamps = {};    // of one rank

  void add(const ExchangeHeader& other);

 private:
  void add_said(const ExchangeHeader& other);
};

/// The record that each rank sends in every first exchange. It has a fixed size. A payload that
/// fits needs no further exchange.
struct ExchangeRecord {
  static constexpr size_t kPayloadBytes = 1024 - sizeof(ExchangeHeader);
  ExchangeHeader header;
  std::byte payload[kPayloadBytes];
};

}  // namespace zero
