// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each, as launchers start them, and how they meet on one host and on several.
#include "launched_ranks.h"

namespace zero::test {
namespace {

TEST(Launched, ranks_of_one_host_meet_under_each_launcher) {
  const std::string job = unique_name();
  const auto expect_local = [](auto variables_of) {
    std::vector<Variables> all;
    for (int rank = 0; rank < 3; ++rank) all.push_back(variables_of(text(rank)));
    expect_met(all, "local");
  };
  expect_local([&](const std::string& rank) {
    return text("ZERO_RANK=", rank, " ZERO_WORLD_SIZE=3 ZERO_LOCAL_WORLD_SIZE=3 ZERO_JOB=", job);
  });
  expect_local([&](const std::string& rank) {
    return text("RANK=", rank, " WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 ",
                "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=", job);
  });
  expect_local([&](const std::string& rank) {
    return text("OMPI_COMM_WORLD_RANK=", rank, " OMPI_COMM_WORLD_SIZE=3 ",
                "OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=", job);
  });
  expect_local([&](const std::string& rank) {
    return text("PMI_RANK=", rank, " PMI_SIZE=3 ZERO_JOB=", job);
  });
  expect_local([&](const std::string& rank) {
    return text("SLURM_PROCID=", rank, " SLURM_NTASKS=3 SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=0 ",
                "SLURM_JOB_ID=", job);
  });
}

/// Returns the comms of three ranks on one host whose devices do not all reach each other.
std::vector<std::string> apart(const NcclRanks& ranks, const Variables& more = {}) {
  std::vector<Variables> all;
  const std::string job = unique_name();
  for (int rank = 0; rank < 3; ++rank) all.push_back(with(here(rank, job), more));
  return outcomes(ranks, all);
}

TEST(Launched, devices_of_one_host_that_do_not_reach_each_other_are_joined_by_nccl) {
  const NcclRanks ranks(3, 1, false, false);
  const std::vector<std::string> results = apart(ranks);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank], text(rank, " of 3, nccl"));
}

TEST(Launched, without_nccl_they_are_joined_through_the_host) {
  const NcclRanks ranks(3, 1, false, false);
  nccl::replace_library(nullptr);
  for (const char* const name : {"ZERO_NCCL_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"}) unsetenv(name);
  if (nccl::library().ok()) GTEST_SKIP() << "the loader finds an NCCL on this machine";
  const std::vector<std::string> results = apart(ranks);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank], text(rank, " of 3, local"));
}

TEST(Launched, ZERO_MASTER_ADDR_asks_for_nccl_on_one_host_too) {
  const NcclRanks ranks(3);
  const std::vector<std::string> results =
      apart(ranks, text("ZERO_MASTER_ADDR=127.0.0.1 ZERO_MASTER_PORT=", free_port()));
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank], text(rank, " of 3, nccl"));
}

TEST(Launched, ranks_of_several_hosts_meet_beside_the_port_of_torch) {
  const uint16_t port = free_port();
  // The store of torch, which nobody may connect to.
  Result<tcp::Listener> store = tcp::listen_anywhere(static_cast<uint16_t>(port - 1));
  ASSERT_TRUE(store.ok()) << store.failure().text();
  expect_met({torchrun(0, 3, port), torchrun(1, 3, port), torchrun(2, 3, port)});
  EXPECT_FALSE(accept_connection(store->fd.get()).valid());
}

TEST(Launched, tasks_of_slurm_meet_on_the_first_host_of_their_step) {
  const OwnResolver resolver;
  std::vector<Variables> all;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back(text("SLURM_PROCID=", rank, " SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=2 ",
                       "SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_ID=0 SLURM_JOB_ID=", unique_name(),
                       " ZERO_JOB=slurm-", getpid()));
  }
  expect_met(all);
}

TEST(Launched, any_launcher_on_several_hosts_is_served_by_ZERO_MASTER_ADDR) {
  const Variables where = text("ZERO_MASTER_ADDR=127.0.0.1 ZERO_MASTER_PORT=", free_port());
  std::vector<Variables> mpi, hydra;
  for (int rank = 0; rank < 2; ++rank) {
    mpi.push_back(with(where, text("OMPI_COMM_WORLD_RANK=", rank, " OMPI_COMM_WORLD_SIZE=2 ",
                                   "OMPI_COMM_WORLD_LOCAL_SIZE=1")));
    hydra.push_back(with(where, text("PMI_RANK=", rank, " PMI_SIZE=2")));
  }
  expect_met(mpi);
  expect_met(hydra);
}

TEST(Launched, one_job_after_the_other_takes_the_same_port) {
  const uint16_t port = free_port();
  for (int i = 0; i < 10; ++i) expect_met({torchrun(0, 2, port), torchrun(1, 2, port)});
}

TEST(Launched, two_jobs_at_once_do_not_meet_each_other) {
  const uint16_t ports[] = {free_port(), free_port()};
  const NcclRanks ranks(4);
  std::vector<Variables> all;
  for (const uint16_t port : ports)
    for (int rank = 0; rank < 2; ++rank) all.push_back(torchrun(rank, 2, port));
  const std::vector<std::string> results = outcomes(ranks, all);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(results[i], text(i % 2, " of 2, nccl"));
}

TEST(Launched, rank_0_of_a_host_that_knows_its_name_as_loopback_listens_for_other_hosts_too) {
  const OwnResolver resolver;
  for (const char* const host : {"node1", "127.0.0.1"}) {
    const NcclRanks ranks(1);
    const uint16_t port = free_port();
    std::thread root([&] {
      (void)join(ranks, with(torchrun(0, 2, port), text("MASTER_ADDR=", host)), 0, 1'000);
    });
    // Another address of this host. A socket that listens only on 127.0.0.1 does not accept it.
    bool reached = false;
    for (int tries = 0; tries < 60 && !reached; tries++) {
      usleep(10'000);
      Fd guest;
      (void)start_connect(place_of(*tcp::to_address("127.0.0.2"), port), &guest);
      pollfd asked{guest.get(), POLLOUT, 0};
      reached = poll(&asked, 1, 20) == 1 && connect_error(guest.get()) == 0;
    }
    root.join();
    EXPECT_EQ(reached, std::string(host) == "node1") << host;
  }
}

TEST(Launched, a_name_that_is_not_known_yet_is_asked_for_again) {
  const OwnResolver resolver;
  const uint16_t port = free_port();
  expect_met({with(torchrun(0, 2, port), "MASTER_ADDR=late"),
              with(torchrun(1, 2, port), "MASTER_ADDR=late")});
}

TEST(Launched, a_world_of_one_opens_its_device_and_needs_no_place_to_meet) {
  const NcclRanks ranks(1);
  EXPECT_EQ(sound(join(ranks, "RANK=0 WORLD_SIZE=1", 0)), "0 of 1, solo");
}

}  // namespace
}  // namespace zero::test
