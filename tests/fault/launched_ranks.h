// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each, as launchers start them. All hosts are this machine, ranks are threads,
// and NCCL is a fake.
#pragma once

#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/text.h"
#include "comm/create.h"
#include "comm/tcp/address.h"
#include "support/nccl_ranks.h"
#include "support/points.h"
#include "support/ranks.h"
#include "support/variables.h"

namespace zero::test {

using Seat = std::shared_ptr<Comm>;
using Opened = Result<std::shared_ptr<Device>>;

/// Returns a port that currently nobody listens on.
inline uint16_t free_port() {
  Result<tcp::Listener> listener = tcp::listen_anywhere();
  EXPECT_TRUE(listener.ok());
  return listener->port;
}

/// Returns the variables that torchrun sets for a rank of `world`, with one rank per host.
inline Variables torchrun(int rank, int world, uint16_t port) {
  return text("RANK=", rank, " WORLD_SIZE=", world, " LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 ",
              "MASTER_ADDR=127.0.0.1 MASTER_PORT=", port - 1, " TORCHELASTIC_RUN_ID=none");
}

inline Result<Seat> join(const NcclRanks& ranks, const Variables& variables, int device,
                         int64_t rendezvous_ms = 20'000) {
  CommOptions options;
  options.rendezvous_ms = rendezvous_ms;
  return create_env(lookup_in(variables), options,
                    [&](int32_t) -> Opened { return Opened(ranks.device(device)); });
}

/// Returns the rank, world and kind of the seat after all ranks have met.
inline std::string sound(const Result<Seat>& seat) {
  if (!seat.ok()) return outcome(seat.failure());
  Result<Call> call = (*seat)->begin(Operation::barrier);
  if (!call.ok()) return outcome(call.failure());
  if (const Status met = call->vote("barrier", {}); !met.ok()) return outcome(met);
  return text((*seat)->rank(), " of ", (*seat)->world(), ", ", (*seat)->kind());
}

/// Returns the results of ranks with these variables. Time passes while all wait.
inline std::vector<std::string> outcomes(const NcclRanks& ranks, const std::vector<Variables>& all,
                                         int64_t rendezvous_ms = 20'000) {
  const Clock clock;
  const auto world = static_cast<int>(all.size());
  std::atomic<int> waiting{world};
  std::vector<std::string> results =
      run_sound_ranks(RankKind::threads, world + 1, [&](int rank) -> std::string {
        if (rank == world) return Clock::run([&] { return waiting.load(); }), "";
        std::string said = sound(join(ranks, all[static_cast<size_t>(rank)], rank, rendezvous_ms));
        --waiting;
        return said;
      });
  results.pop_back();
  return results;
}

inline void expect_met(const std::vector<Variables>& all, const char* kind = "nccl") {
  const NcclRanks ranks(static_cast<int32_t>(all.size()));
  const std::vector<std::string> results = outcomes(ranks, all);
  for (size_t rank = 0; rank < results.size(); ++rank)
    EXPECT_EQ(results[rank], text(rank, " of ", results.size(), ", ", kind));
}

/// A resolver that knows "node1", and "late" after three queries in vain, or does not answer at
/// all.
inline std::atomic<bool> resolver_hangs{false};
inline std::atomic<int> unknown_asked{0};
inline int stand_in_resolver(const char* host, const char* service, const addrinfo* hints,
                             addrinfo** found) {
  while (resolver_hangs) usleep(1000);
  const bool known = strcmp(host, "node1") == 0 || (strcmp(host, "late") == 0 && unknown_asked > 2);
  if (!known) ++unknown_asked;
  return known ? real_system_calls().getaddrinfo("127.0.0.1", service, hints, found) : EAI_NONAME;
}

class OwnResolver {
 public:
  OwnResolver() { unknown_asked = 0; }
  ~OwnResolver() { resolver_hangs = false; }

 private:
  const ReplacedCall getaddrinfo_{&SystemCalls::getaddrinfo, stand_in_resolver};
};

/// Returns the variables that zero-run sets for one of three ranks.
inline Variables here(int rank, const std::string& job) {
  return text("ZERO_RANK=", rank, " ZERO_WORLD_SIZE=3 ZERO_LOCAL_WORLD_SIZE=3 ZERO_JOB=", job);
}

}  // namespace zero::test
