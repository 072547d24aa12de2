// SPDX-License-Identifier: Apache-2.0
#include "comm/desync.h"

#include <cstring>
#include <string_view>

#include "base/text.h"
#include "comm/comm.h"

namespace zero {
namespace {

const char* kind_verb(uint32_t kind) {
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

std::string place_of(const Agreed& a) {
  const size_t length = strnlen(a.phase, sizeof a.phase);
  return text(operation_name(static_cast<Operation>(a.operation)), " at '",
              std::string_view(a.phase, length), "'");
}

}  // namespace

const char* operation_name(Operation operation) {
  switch (operation) {
    case Operation::create:
      return "zero_comm_create";
    case Operation::barrier:
      return "zero_comm_barrier";
    case Operation::broadcast:
      return "zero_comm_broadcast";
    case Operation::all_reduce:
      return "zero_comm_all_reduce";
    case Operation::split:
      return "zero_comm_split";
    case Operation::arena_alloc:
      return "zero_arena_alloc";
    case Operation::seal:
      return "zero_seal";
    case Operation::broadcast_params:
      return "zero_broadcast_params";
    case Operation::reduce_grads:
      return "zero_reduce_grads";
    case Operation::clip_grad_norm:
      return "zero_clip_grad_norm";
    case Operation::step:
      return "zero_step";
    case Operation::save:
      return "zero_state_save";
    case Operation::load:
      return "zero_state_load";
  }
  return "an unknown call";
}

std::string desync_sentence(int32_t rank, const Agreed& a, int32_t other, const Agreed& b) {
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
