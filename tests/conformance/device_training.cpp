// SPDX-License-Identifier: Apache-2.0
#include "device_training.h"

#include "api/handles.h"
#include "comm/create.h"
#include "support/emulated_launches.h"
#include "support/ranks.h"

namespace zero::test {

std::shared_ptr<ChaosWorld> chaos(uint64_t seed, const Abilities& abilities) {
  return ChaosWorld::create({.seed = seed,
                             .eager = seed % 4 == 0,
                             .patience = INT64_MAX,
                             .emulate = emulate,
                             .guarded = seed % 8 == 1,
                             .words = abilities.words,
                             .reaches = abilities.reaches});
}

Rank run_on(const Training& training, std::shared_ptr<Comm> seat) {
  const std::shared_ptr<Device> device = seat->device();
  zero_comm* const comm = api::add_handle(std::move(seat));
  Rank rank;
  rank.outcome = train(training, comm, &rank.error, device);
  zero_comm_free(comm);
  return rank;
}

Rank run_alone(const Training& training, const std::shared_ptr<Device>& device) {
  return run_on(training, create_solo({}, device).value());
}

std::vector<Rank> run_together(const Training& training, const Join& join) {
  std::vector<Rank> all(static_cast<size_t>(training.world));
  run_sound_ranks(RankKind::threads, training.world, [&](int rank) {
    Rank& own = all[static_cast<size_t>(rank)];
    Result<std::shared_ptr<Comm>> seat = join(rank);
    if (!seat.ok()) return own.error = seat.failure().text();
    own = run_on(training, std::move(seat).value());
    return own.error;
  });
  return all;
}

std::vector<Rank> run_together(const Training& training, const NcclRanks& ranks) {
  return run_together(training, [&](int rank) { return ranks.join(rank); });
}

std::vector<Rank> run_locally(const Training& training, const std::shared_ptr<ChaosWorld>& world,
                              const CommOptions& options) {
  const std::string name = unique_name();
  std::vector<std::shared_ptr<Device>> devices;
  for (int r = 0; r < training.world; r++) devices.push_back(world->make_device(r));
  return run_together(training, [&](int rank) {
    return create_local(name, rank, training.world, options, devices[static_cast<size_t>(rank)]);
  });
}

}  // namespace zero::test
