// SPDX-License-Identifier: Apache-2.0
#include "device_training.h"

#include "api/handles.h"
#include "comm/create.h"
#include "support/emulated_launches.h"

namespace zero::test {

std::shared_ptr<ChaosWorld> chaos(uint64_t seed) {
  return ChaosWorld::create({.seed = seed, .eager = seed % 4 == 0, .emulate = emulate});
}

Rank run_alone(const Training& training, const std::shared_ptr<ChaosWorld>& world) {
  const std::shared_ptr<Device> device = world->make_device();
  zero_comm* const comm = api::add_handle(create_solo({}, device).value());
  Rank rank;
  rank.outcome = train(training, comm, &rank.error, device);
  zero_comm_free(comm);
  return rank;
}

}  // namespace zero::test
