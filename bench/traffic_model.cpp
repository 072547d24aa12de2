// SPDX-License-Identifier: Apache-2.0
#include "traffic_model.h"

#include "comm/exchange_record.h"
#include "comm/hosts/parts.h"
#include "comm/tcp/tree.h"
#include "kernels/step_state.h"
#include "step/memory.h"
#include "step/travel.h"

namespace bench {
namespace {

using namespace zero;

/// Returns how many of some ranks have the place on their hosts that `rank` has: it trades with
/// them.
size_t fellows(const hosts::Layout& layout, const Ranks& among, int32_t rank) {
  size_t count = 0;
  for (int32_t i = 0; i < among.count; i++)
    if (layout.seat(among.first + i * among.stride).place == layout.seat(rank).place) count++;
  return count;
}

/// Adds a transfer of `bytes` to each fellow.
void add_transfer(Flow& flow, size_t fellows, size_t bytes) {
  const hosts::Parts parts{fellows, bytes};
  const auto others = static_cast<int64_t>(fellows) - 1;
  flow.bytes += static_cast<int64_t>(bytes) * others;
  flow.messages += static_cast<int64_t>(parts.count()) * others;
}

// Enter, vote and publish, in a steady step. What they say has room in a record.
constexpr int64_t kExchanges = 3;
static_assert(sizeof(NormSums) <= ExchangeRecord::kPayloadBytes);

}  // namespace

Sent sent_by(int32_t rank, const Cluster& cluster, const Plan& plan) {
  Sent sent;
  const hosts::Layout& layout = cluster.layout;
  const auto all = static_cast<size_t>(layout.hosts());
  const size_t with_copies = fellows(layout, cluster.copies(rank), rank);
  const size_t of_instance = fellows(layout, cluster.instance(rank), rank);
  for (const Transfer& transfer : plan.transfers(true)) {
    const Section& section = plan.section(transfer.section);
    const bool rounds = cluster.wire != DType::none && cluster.wire != section.grad_dtype &&
                        section.dtype != DType::f64;
    const DType given = rounds ? cluster.wire : section.grad_dtype;
    const DType travels = layout.places == 1 || rounds ? given : section.sum();
    const int64_t part = travel::part_elements(transfer, cluster.instances);
    add_transfer(sent.gradients, all, size_of(travels, part));
    add_transfer(sent.copies, with_copies, size_of(section.sum(), part));
    add_transfer(sent.parameters, of_instance, size_of(section.dtype, transfer.chunk));
  }
  if (layout.seat(rank).place == 0) {
    const tcp::Tree tree{layout.seat(rank).host, layout.hosts()};
    sent.control.add(sizeof(ExchangeRecord),
                     kExchanges * (tree.children() + (tree.is_root() ? 0 : 1)));
  }
  return sent;
}

Tables tables_of(const Cluster& cluster, const Plan& plan) {
  constexpr int64_t kRow = 2 * sizeof(std::byte*);  // of a view: its source and its target
  const auto scratch = [](int32_t world) {
    return static_cast<int64_t>(Comm::scratch_bytes(world));
  };
  const auto owned = static_cast<int64_t>(plan.segments(0).size());
  // Of buckets as large as they usually are.
  const hosts::Parts parts{static_cast<size_t>(cluster.layout.hosts()), hosts::Parts::kRoomBytes};
  const size_t rooms = 2 * hosts::Parts::kRooms * parts.fellows * parts.most();
  return {.segments = owned * static_cast<int64_t>(sizeof(Segment) + sizeof(View) + kRow),
          .placements = plan.params() * static_cast<int64_t>(sizeof(Placement)),
          .records = scratch(cluster.world()) + scratch(cluster.layout.hosts()) +
                     scratch(cluster.layout.places),
          .parts = static_cast<int64_t>(rooms),
          .packing = owned * cluster.places() * static_cast<int64_t>(sizeof(Segment))};
}

}  // namespace bench
