// SPDX-License-Identifier: Apache-2.0
// The comm of ranks that a launcher started on one host, each on a device: they find out together
// which one serves them best.
#include <algorithm>

#include "base/text.h"
#include "comm/create.h"

namespace zero {
namespace {

using Seat = std::shared_ptr<Comm>;

/// On the host, for as long as the ranks find out.
Result<Seat> meet(const Launched& launch, CommOptions options) {
  options.late_ms = options.timeout_ms = options.rendezvous_ms;
  return create_local(comm_name(text(launch.job, ", on devices")), launch.rank, launch.world,
                      options, nullptr, launch.job);
}

/// A local comm, if no rank's device lacks what it takes; else nothing, on every rank.
Result<Seat> try_direct(Call& call, const Launched& launch, CommOptions options,
                        const std::shared_ptr<Device>& device) {
  options.stages = false;
  Result<Seat> local = create_local(comm_name(text(launch.job, ", directly")), launch.rank,
                                    launch.world, options, device, launch.job);
  const bool lacks = local.failure().code() == ZERO_ERR_UNSUPPORTED;
  const Status own = lacks ? Status() : Status(local.failure());
  const Status all = call.vote("memory", own);
  if (!all.ok()) return own.ok() ? all : own;  // also where the others did not come to hear it
  const std::vector<int32_t> lacking = ZERO_TRY(call.exchange("reach", int32_t{lacks}));
  const bool any =
      std::any_of(lacking.begin(), lacking.end(), [](int32_t one) { return one != 0; });
  return any ? Seat() : std::move(*local);
}

struct Found {
  Seat comm;
  bool nccl = false;  // where there is no comm yet: every rank has it
};

Result<Found> find(const Launched& launch, const CommOptions& options,
                   const Result<std::shared_ptr<Device>>& device) {
  const Seat seat = ZERO_TRY(meet(launch, options));
  Call call = ZERO_TRY(seat->begin(Operation::create_env));
  ZERO_TRY(call.vote("devices", device.failure()));
  Found found{ZERO_TRY(try_direct(call, launch, options, *device))};
  if (found.comm != nullptr) return found;
  const std::vector<int32_t> has = ZERO_TRY(call.exchange("nccl", int32_t{check_nccl().ok()}));
  found.nccl = std::all_of(has.begin(), has.end(), [](int32_t one) { return one != 0; });
  return found;
}

}  // namespace

Result<Seat> create_launched_here(Result<std::shared_ptr<Device>> device, const Launched& launch,
                                  const CommOptions& options) {
  const auto named = [&](Status status) {
    return std::move(status).within(
        text("rank ", launch.rank, " of ", launch.world, " that ", launch.launcher, " started"));
  };
  Result<Found> found = find(launch, options, device);
  // Its own fault says more than that others did not come.
  if (!found.ok()) return named(device.ok() ? found.failure() : device.failure());
  if (found->comm != nullptr) return std::move(found->comm);
  if (found->nccl) return create_launched_nccl(std::move(device), launch, std::nullopt, options);
  Result<Seat> staged = create_local(comm_name(text(launch.job, ", by the host")), launch.rank,
                                     launch.world, options, std::move(*device), launch.job);
  if (!staged.ok()) return named(staged.failure());
  return staged;
}

}  // namespace zero
