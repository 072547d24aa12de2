// SPDX-License-Identifier: Apache-2.0
#include "traffic_model.h"

#include <algorithm>
#include <vector>

#include "comm/exchange_record.h"
#include "comm/hosts/parts.h"
#include "comm/tcp/tree.h"
#include "kernels/step_state.h"
#include "step/memory.h"
#include "step/travel.h"

namespace bench {
namespace {

using namespace zero;

/// The ranks that exchange data with a rank, because they have its place on their hosts, and the
/// rank itself.
struct Fellows {
  std::vector<int32_t> numbers;  // among all that exchange data
  int32_t own = 0;

  Fellows(const hosts::Layout& layout, const Ranks& among, int32_t rank) {
    for (int32_t i = 0; i < among.count; i++) {
      const int32_t other = among.first + i * among.stride;
      if (layout.seat(other).place != layout.seat(rank).place) continue;
      if (other == rank) own = i;
      numbers.push_back(i);
    }
  }
  /// These return how many others there are, and how many of them are among the first `owners`.
  int64_t others() const { return static_cast<int64_t>(numbers.size()) - 1; }
  int64_t other_owners(int32_t owners) const {
    const auto first = std::ranges::lower_bound(numbers, owners) - numbers.begin();
    return first - (own < owners ? 1 : 0);
  }
};

/// Adds a transfer of `bytes` between the rank and each owner. With `owning`, counts the side of
/// the owner: between the rank, if it is an owner, and all others.
void add_transfer(Flow& flow, const Fellows& fellows, size_t bytes, int32_t owners, bool owning) {
  const hosts::Parts parts{fellows.numbers.size(), bytes};
  const int64_t as_owner = fellows.own < owners ? fellows.others() : 0;
  const int64_t others = owning ? as_owner : fellows.other_owners(owners);
  flow.bytes += static_cast<int64_t>(bytes) * others;
  flow.messages += static_cast<int64_t>(parts.count()) * others;
}

// Enter, vote and publish, in a steady step. Their messages fit into a record.
constexpr int64_t kExchanges = 3;
static_assert(sizeof(NormSums) <= ExchangeRecord::kPayloadBytes);

Traded trade_of(int32_t rank, const Cluster& cluster, const Plan& plan, bool comes) {
  Traded traded;
  const hosts::Layout& layout = cluster.layout;
  const Fellows all(layout, {0, 1, cluster.world()}, rank);
  const Fellows with_copies(layout, cluster.copies(rank), rank);
  const Fellows of_instance(layout, cluster.instance(rank), rank);
  for (const Transfer& transfer : plan.transfers(true)) {
    const Section& section = plan.section(transfer.section);
    const bool rounds = cluster.wire != DType::none && cluster.wire != section.grad_dtype &&
                        section.dtype != DType::f64;
    const DType given = rounds ? cluster.wire : section.grad_dtype;
    const DType travels = layout.places == 1 || rounds ? given : section.sum();
    const int64_t part = travel::part_elements(transfer, cluster.instances);
    add_transfer(traded.gradients, all, size_of(travels, part),
                 cluster.instances == 1 ? transfer.owners : kAllRanks, comes);
    add_transfer(traded.copies, with_copies, size_of(section.sum(), part), kAllRanks, comes);
    add_transfer(traded.parameters, of_instance, size_of(section.dtype, transfer.chunk),
                 transfer.owners, !comes);
  }
  if (layout.seat(rank).place == 0) {
    const tcp::Tree tree{layout.seat(rank).host, layout.hosts()};
    traded.control.add(sizeof(ExchangeRecord),
                       kExchanges * (tree.children() + (tree.is_root() ? 0 : 1)));
  }
  return traded;
}

}  // namespace

Traded sent_by(int32_t rank, const Cluster& cluster, const Plan& plan) {
  return trade_of(rank, cluster, plan, false);
}

Traded received_by(int32_t rank, const Cluster& cluster, const Plan& plan) {
  return trade_of(rank, cluster, plan, true);
}

Tables tables_of(const Cluster& cluster, const Plan& plan) {
  constexpr int64_t kRow = 2 * sizeof(std::byte*);  // of a view: its source and its target
  const auto scratch = [](int32_t world) {
    return static_cast<int64_t>(Comm::scratch_bytes(world));
  };
  const auto owned = static_cast<int64_t>(plan.segments(0).size());
  // For buckets of the usual size.
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
