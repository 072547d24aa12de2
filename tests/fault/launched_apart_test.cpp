// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each, as launchers start them, that do not meet or cannot continue, and the
// errors that they get.
#include "launched_ranks.h"
#include "support/interrupted.h"

namespace zero::test {
namespace {

TEST(Launched, a_rank_that_does_not_come_is_named) {
  const NcclRanks ranks(2);
  const uint16_t port = free_port();
  const auto results = outcomes(ranks, {torchrun(0, 4, port), torchrun(2, 4, port)}, 400);
  EXPECT_TRUE(contains(results[0],
                       "ZERO_ERR_RENDEZVOUS: rank 0 of 4, started by torchrun: rank "
                       "1, rank 3 did not connect to rank 0 within ",
                       "(MASTER_ADDR is '127.0.0.1', and the port is next to "));
  EXPECT_FALSE(contains(results[1], "nccl")) << results[1];
}

TEST(Launched, a_rank_on_this_host_that_does_not_come_is_named) {
  const NcclRanks ranks(1);
  const Variables alone =
      with("ZERO_RANK=0 ZERO_WORLD_SIZE=2 ZERO_LOCAL_WORLD_SIZE=2", {{"ZERO_JOB", unique_name()}});
  const auto results = outcomes(ranks, {alone}, 200);
  EXPECT_TRUE(
      contains(results[0], "ZERO_ERR_RENDEZVOUS: rank 0 of 2, started by zero-run: ", "rank 1"));
}

TEST(Launched, where_rank_0_is_not_is_named_with_what_happened_there) {
  const NcclRanks ranks(1);
  const uint16_t port = free_port();
  const auto results = outcomes(ranks, {torchrun(1, 2, port)}, 200);
  EXPECT_TRUE(contains(results[0],
                       "ZERO_ERR_RENDEZVOUS: rank 1 of 2, started by torchrun: rank 0 "
                       "could not be reached within ",
                       text(" ms at port ", port, " of 127.0.0.1 (Connection refused")));
}

TEST(Launched, a_host_that_nobody_knows_is_named) {
  const OwnResolver resolver;
  const NcclRanks ranks(1);
  const Variables lost = with(torchrun(1, 2, free_port()), "MASTER_ADDR=nowhere");
  const auto results = outcomes(ranks, {lost}, 200);
  EXPECT_TRUE(contains(results[0], "ZERO_ERR_RENDEZVOUS: ",
                       "no address for host 'nowhere' was found within 200 ms: "));
}

TEST(Launched, a_resolver_that_does_not_answer_ends_with_the_deadline) {
  const OwnResolver resolver;
  resolver_hangs = true;
  const NcclRanks ranks(1);
  const Variables lost = with(torchrun(0, 2, free_port()), "MASTER_ADDR=node1");
  const auto results = outcomes(ranks, {lost}, 200);
  EXPECT_TRUE(contains(results[0], "within 200 ms: the resolver did not answer"));
}

TEST(Launched, an_interrupt_ends_the_wait_for_the_resolver) {
  for (const bool hangs : {false, true}) {
    const OwnResolver resolver;
    resolver_hangs = hangs;
    const NcclRanks ranks(1);
    const Variables lost = with(torchrun(0, 2, free_port()), "MASTER_ADDR=nowhere");
    const Interrupted call;
    const Deadline soon(5'000);
    const Status told = join(ranks, lost, 0, 60'000).failure();
    EXPECT_EQ(told.code(), ZERO_ERR_RENDEZVOUS);
    EXPECT_TRUE(contains(told.text(),
                         "no address for host 'nowhere' was found: this rank was interrupted"));
    EXPECT_FALSE(soon.passed());
    EXPECT_TRUE(call.heeded());
  }
}

TEST(Launched, a_port_that_another_program_has_is_named_by_rank_0) {
  const NcclRanks ranks(2);
  Result<tcp::Listener> other = tcp::listen_anywhere();
  ASSERT_TRUE(other.ok());
  const auto results =
      outcomes(ranks, {torchrun(0, 2, other->port), torchrun(1, 2, other->port)}, 300);
  EXPECT_TRUE(contains(results[0], text("ZERO_ERR_RENDEZVOUS: rank 0 of 2, started by torchrun: "
                                        "port ",
                                        other->port, " is in use: set ZERO_MASTER_PORT")));
  EXPECT_TRUE(contains(results[1], "of 127.0.0.1 (no answer)"));
}

TEST(Launched, a_port_that_is_given_up_in_time_is_taken) {
  const NcclRanks ranks(2);
  Result<tcp::Listener> other = tcp::listen_anywhere();
  ASSERT_TRUE(other.ok());
  const uint16_t port = other->port;
  std::thread ending([&] {
    usleep(200'000);
    other->fd.reset();
  });
  const auto results = outcomes(ranks, {torchrun(0, 2, port), torchrun(1, 2, port)});
  ending.join();
  EXPECT_EQ(results[0], "0 of 2, nccl");
}

TEST(Launched, a_rank_of_another_job_is_not_let_in) {
  const NcclRanks ranks(3);
  const uint16_t port = free_port();
  const auto results = outcomes(
      ranks,
      {torchrun(0, 2, port), torchrun(1, 2, port), with(torchrun(1, 2, port), "ZERO_JOB=another")},
      1'500);
  EXPECT_EQ(results[0], "0 of 2, nccl");
  EXPECT_EQ(results[1], "1 of 2, nccl");
  EXPECT_TRUE(contains(results[2], "ZERO_ERR_RENDEZVOUS: "));
}

TEST(Launched, strangers_do_not_disturb_the_ranks) {
  const NcclRanks ranks(2);
  const uint16_t port = free_port();
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    const std::string words = "GET / HTTP/1.1\r\n\r\n";
    for (int i = 0; !over; ++i) {
      Fd fd;
      const int error = start_connect(place_of(*tcp::to_address("127.0.0.1"), port), &fd);
      usleep(2'000);
      if (error == 0 && i % 2 == 0) (void)send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
      usleep(2'000);
    }
  });
  std::vector<std::string> results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    if (rank == 1) usleep(100'000);
    return sound(join(ranks, torchrun(rank, 2, port), rank));
  });
  over = true;
  stranger.join();
  EXPECT_EQ(results[0], "0 of 2, nccl");
  EXPECT_EQ(results[1], "1 of 2, nccl");
}

// ---- Ranks that cannot continue.

TEST(Launched, a_rank_without_its_device_tells_the_others_at_once) {
  for (const bool one_host : {true, false}) {
    for (int culprit = 0; culprit < 3; ++culprit) {
      const NcclRanks ranks(3);
      const uint16_t port = free_port();
      const std::string job = unique_name();
      const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
        const Variables variables = one_host ? here(rank, job) : torchrun(rank, 3, port);
        return outcome(create_env(lookup_in(variables), {}, [&](int32_t) -> Opened {
                         if (rank != culprit) return Opened(ranks.device(rank));
                         return Status(ZERO_ERR_ARGUMENT, "no such device");
                       }).status());
      });
      for (int rank = 0; rank < 3; ++rank) {
        const std::string& said = results[static_cast<size_t>(rank)];
        const std::string expected =
            rank == culprit ? std::string("ZERO_ERR_ARGUMENT: ")
                            : text("ZERO_ERR_PEER: rank ", rank, " of 3, started by ",
                                   one_host ? "zero-run" : "torchrun", ": rank ", culprit,
                                   " in zero_comm_create_env: ZERO_ERR_ARGUMENT: no such device");
        EXPECT_EQ(said.substr(0, expected.size()), expected);
      }
    }
  }
}

/// The third call is for the control segment of the comm that the ranks try.
int memory_calls = 0;
int third_memfd_that_fails(const char* name, unsigned flags) {
  if (++memory_calls != 3) return real_system_calls().memfd_create(name, flags);
  errno = ENOMEM;
  return -1;
}

TEST(Launched, a_rank_tells_its_own_cause_also_when_the_others_died_before_they_heard_it) {
  const std::string job = unique_name();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 2, [&](int rank) {
    const NcclRanks ranks(2);
    if (rank == 0) replace_call(&SystemCalls::memfd_create, third_memfd_that_fails);
    // Rank 1 dies after it has met the other rank, and knows that both have a device.
    if (rank == 1) watch_points({"exchange.written", 3}, die);
    const Variables variables = with(here(rank, job), "ZERO_WORLD_SIZE=2 ZERO_LOCAL_WORLD_SIZE=2");
    return sound(join(ranks, variables, rank));
  });
  EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR_SYSTEM: rank 0 of 2, started by zero-run: ",
                       ", directly': creating shared memory 'zero.control': "));
}

TEST(Launched, a_rank_that_cannot_go_on_says_so_also_where_nobody_comes) {
  const Variables variables = torchrun(0, 2, free_port());
  CommOptions options;
  options.rendezvous_ms = 100;
  const auto refuse = [](int32_t) { return Opened(Status(ZERO_ERR_UNSUPPORTED, "no driver")); };
  EXPECT_EQ(outcome(create_env(lookup_in(variables), options, refuse).status()),
            "ZERO_ERR_UNSUPPORTED: rank 0 of 2, started by torchrun: no driver");
}

TEST(Launched, two_processes_with_one_rank_are_both_named) {
  const uint16_t port = free_port();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int process) {
    const NcclRanks ranks(1);
    if (process == 2) usleep(300'000);
    return sound(join(ranks, torchrun(process == 0 ? 0 : 1, 3, port), 0, 2'000));
  });
  EXPECT_TRUE(
      contains(ends[0].result, "ZERO_ERR_RENDEZVOUS: ", "rank 1 arrived twice: as process "));
}

TEST(Launched, each_rank_opens_the_device_of_its_place_on_its_host) {
  const NcclRanks ranks(2);
  const uint16_t port = free_port();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Variables variables = with(torchrun(rank, 2, port), text("LOCAL_RANK=", 5 + rank));
    const Result<Seat> seat =
        create_env(lookup_in(variables), {}, [&](int32_t local_rank) -> Opened {
          EXPECT_EQ(local_rank, 5 + rank);
          return Opened(ranks.device(rank));
        });
    EXPECT_TRUE(seat.ok()) << seat.failure().text();
    return std::string();
  });
}

TEST(Launched, ranks_of_several_hosts_without_gpus_are_told_what_to_do) {
  const Variables variables = torchrun(0, 2, 29501);
  EXPECT_EQ(
      outcome(create_env(lookup_in(variables), {}, {}).status()),
      "ZERO_ERR_UNSUPPORTED: torchrun started ranks on several hosts (LOCAL_WORLD_SIZE is 1 "
      "and WORLD_SIZE is 2), which libzero joins only on GPUs or through MPI: no MPI is loaded in "
      "this "
      "process: link the program to one, or load one, and call MPI_Init_thread; or start them "
      "all on one host, set device to ZERO_DEVICE_CUDA, or supply your own collectives "
      "with zero_comm_create_user");
}

}  // namespace
}  // namespace zero::test
