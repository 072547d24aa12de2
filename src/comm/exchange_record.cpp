// SPDX-License-Identifier: Apache-2.0
#include "comm/exchange_record.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace zero {
namespace {

const char* kind_verb(uint32_t kind) {
  constexpr const char* kVerbs[] = {"does something unknown", "exchanges", "votes", "gathers",
                                    "broadcasts"};
  return kVerbs[kind < std::size(kVerbs) ? kind : 0];
}

std::string place_of(const ExchangeKey& a) {
  const size_t length = strnlen(a.phase, sizeof a.phase);
  return text(operation_name(a.operation), " at '", std::string_view(a.phase, length), "'");
}

}  // namespace

std::string desync_sentence(int32_t rank, const ExchangeKey& a, int32_t other,
                            const ExchangeKey& b) {
  const auto both = [&](auto&& describe) {
    return text("rank ", rank, " ", describe(a), ", rank ", other, " ", describe(b));
  };
  const auto name = [](const ExchangeKey& x) { return operation_name(x.operation); };
  if (a.world != b.world)
    return both([](const ExchangeKey& x) { return text("has a comm of ", x.world, " ranks"); });
  if (a.operation != b.operation)
    return both([&](const ExchangeKey& x) { return text("called ", name(x)); });
  if (a.object != b.object)
    return both([&](const ExchangeKey& x) {
      return text("called ", name(x), " on its optimizer ", x.object);
    });
  if (a.call != b.call)
    return both([&](const ExchangeKey& x) {
      return text("is in its collective call ", x.call, " (", name(x), ")");
    });
  if (a.exchange != b.exchange || a.kind != b.kind || memcmp(a.phase, b.phase, sizeof a.phase) != 0)
    return both([](const ExchangeKey& x) {
      return text(kind_verb(x.kind), " in ", place_of(x), " (exchange ", x.exchange, ")");
    });
  if (a.bytes != b.bytes)
    return both(
        [](const ExchangeKey& x) { return text("sends ", x.bytes, " bytes in ", place_of(x)); });
  return both([](const ExchangeKey& x) {
    return text("expects the data of rank ", x.root, " in ", place_of(x));
  });
}

void ExchangeHeader::add(const ExchangeHeader& other) {
  if (other.magic != kMagic) magic = other.magic;
  traces |= other.traces;
  ahead |= other.ahead;
  longest = std::max(longest, other.longest);
  if (other.failed >= 0 && (failed < 0 || other.failed < failed)) {
    failed = other.failed;
    code = other.code;
    why_bytes = other.why_bytes;
  }
  add_said(other);
}

void ExchangeHeader::add_said(const ExchangeHeader& other) {
  const ExchangeSaid first = lowest.rank < other.lowest.rank ? lowest : other.lowest;
  if (odd.rank >= 0 || other.odd.rank >= 0 || lowest.differs_from(other.lowest)) {
    const ExchangeSaid all[] = {odd, other.odd, lowest, other.lowest};
    odd.rank = -1;
    for (const ExchangeSaid& one : all)
      if (one.rank >= 0 && one.differs_from(first) && (odd.rank < 0 || one.rank < odd.rank))
        odd = one;
  }
  lowest = first;
}

}  // namespace zero
