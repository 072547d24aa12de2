// SPDX-License-Identifier: Apache-2.0
// Training whose tensors are on a device that runs what is queued in a random legal order.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "equivalence.h"
#include "support/chaos_device.h"
#include "support/nccl_ranks.h"
#include "training.h"

namespace zero::test {

/// What devices of several ranks can do without the host.
struct Abilities {
  bool words = true;    // wait for each other
  bool reaches = true;  // map each other's memory
};

/// Devices that run their work in an order drawn from `seed`.
std::shared_ptr<ChaosWorld> chaos(uint64_t seed, const Abilities& abilities = {});

/// One rank on the device of its seat.
Rank run_on(const Training& training, std::shared_ptr<Comm> seat);
/// The only rank.
Rank run_alone(const Training& training, const std::shared_ptr<Device>& device);
/// Ranks that are threads, each with the seat that `join` finds for it.
using Join = std::function<Result<std::shared_ptr<Comm>>(int rank)>;
std::vector<Rank> run_together(const Training& training, const Join& join);
/// The same, each on its device, over NCCL.
std::vector<Rank> run_together(const Training& training, const NcclRanks& ranks);
/// The same, in a local comm of devices of that world.
std::vector<Rank> run_locally(const Training& training, const std::shared_ptr<ChaosWorld>& world,
                              const CommOptions& options = {});

}  // namespace zero::test
