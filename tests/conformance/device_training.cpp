// SPDX-License-Identifier: Apache-2.0
#include "device_training.h"

#include "api/handles.h"
#include "comm/create.h"
#include "support/emulated_launches.h"
#include "support/ranks.h"

namespace zero::test {

std::shared_ptr<ChaosWorld> chaos(uint64_t seed) {
  return ChaosWorld::create(
      {.seed = seed, .eager = seed % 4 == 0, .emulate = emulate, .guarded = seed % 8 == 1});
}

Rank run_alone(const Training& training, const std::shared_ptr<ChaosWorld>& world) {
  const std::shared_ptr<Device> device = world->make_device();
  zero_comm* const comm = api::add_handle(create_solo({}, device).value());
  Rank rank;
  rank.outcome = train(training, comm, &rank.error, device);
  zero_comm_free(comm);
  return rank;
}

std::vector<Rank> run_together(const Training& training, const NcclRanks& ranks) {
  std::vector<Rank> all(static_cast<size_t>(training.world));
  run_sound_ranks(RankKind::threads, training.world, [&](int rank) {
    Rank& own = all[static_cast<size_t>(rank)];
    Result<std::shared_ptr<Comm>> seat = ranks.join(rank);
    if (!seat.ok()) return own.error = seat.failure().text();
    zero_comm* const comm = api::add_handle(std::move(seat).value());
    own.outcome = train(training, comm, &own.error, ranks.device(rank));
    zero_comm_free(comm);
    return own.error;
  });
  return all;
}

}  // namespace zero::test
