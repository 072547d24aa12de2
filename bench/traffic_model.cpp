// SPDX-License-Identifier: Apache-2.0
#include "traffic_model.h"

#include <set>

#include "base/checked.h"
#include "comm/exchange_record.h"
#include "comm/hosts/parts.h"
#include "comm/tcp/tree.h"
#include "kernels/step_state.h"
#include "step/memory.h"

namespace bench {
namespace {

using namespace zero;

/// Returns how many other hosts have some of those ranks: `count`, `stride` apart, one is `rank`.
int64_t other_hosts(const Cluster& cluster, int32_t first, int32_t stride, int32_t count) {
  std::set<int32_t> hosts;
  for (int32_t i = 0; i < count; i++) hosts.insert((first + i * stride) / cluster.ranks);
  return static_cast<int64_t>(hosts.size()) - 1;
}

/// Adds a transfer of `bytes` to a rank of each of so many `others`.
void add_transfer(Flow& flow, const Cluster& cluster, int64_t bytes, int64_t others) {
  const hosts::Parts parts{static_cast<size_t>(cluster.hosts), static_cast<size_t>(bytes)};
  flow.bytes += bytes * others;
  flow.messages += static_cast<int64_t>(parts.count()) * others;
}

// Enter, ready, vote and publish, in a steady step. What they say has room in a record.
constexpr int64_t kExchanges = 4;
static_assert(sizeof(NormSums) <= ExchangeRecord::kPayloadBytes);

}  // namespace

Sent sent_by(int32_t rank, const Cluster& cluster, const Plan& plan) {
  Sent sent;
  const int32_t places = cluster.places(), copies = cluster.instances;
  const int64_t all = cluster.hosts - 1;
  const int64_t with_copies = other_hosts(cluster, rank % places, places, copies);
  const int64_t of_instance = other_hosts(cluster, rank / places * places, 1, places);
  for (const Transfer& transfer : plan.transfers(true)) {
    const Section& section = plan.section(transfer.section);
    const bool rounds = cluster.wire != DType::none && cluster.wire != section.grad_dtype &&
                        section.dtype != DType::f64;
    const DType given = rounds ? cluster.wire : section.grad_dtype;
    const DType travels = cluster.ranks == 1 || rounds ? given : section.sum();
    const int64_t part =
        copies == 1 ? transfer.chunk : round_up((transfer.chunk + copies - 1) / copies, kAlignment);
    const auto bytes = [](DType dtype, int64_t count) {
      return static_cast<int64_t>(size_of(dtype, count));
    };
    add_transfer(sent.gradients, cluster, bytes(travels, part), all);
    if (copies > 1) add_transfer(sent.copies, cluster, bytes(section.sum(), part), with_copies);
    add_transfer(sent.parameters, cluster, bytes(section.dtype, transfer.chunk), of_instance);
  }
  if (rank % cluster.ranks == 0) {
    const tcp::Tree tree{rank / cluster.ranks, cluster.hosts};
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
  const int64_t row =
      static_cast<int64_t>(hosts::Parts{static_cast<size_t>(cluster.hosts), 0}.most());
  return {.segments = owned * static_cast<int64_t>(sizeof(Segment) + sizeof(View) + kRow),
          .placements = plan.params() * static_cast<int64_t>(sizeof(Placement)),
          .records = scratch(cluster.world()) + scratch(cluster.hosts) + scratch(cluster.ranks),
          .parts = 2 * static_cast<int64_t>(hosts::Parts::kRooms) * cluster.hosts * row,
          .packing = owned * cluster.places() * static_cast<int64_t>(sizeof(Segment))};
}

}  // namespace bench
