// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each, as launchers start them: how they meet, on one host and on several, and
// what each is told where they do not. All hosts are this one, ranks are threads, NCCL is a
// stand-in.
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "base/text.h"
#include "comm/create.h"
#include "comm/tcp/socket.h"
#include "support/nccl_ranks.h"
#include "support/points.h"
#include "support/ranks.h"

namespace zero::test {
namespace {

using Variables = std::map<std::string, std::string>;
using Seat = std::shared_ptr<Comm>;
using Opened = Result<std::shared_ptr<Device>>;

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Lookup lookup_in(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string outcome(const Status& status) {
  return status.ok() ? "ok" : text(code_name(status.code()), ": ", status.text());
}

/// A port that nobody listens at, for now.
uint16_t free_port() {
  Result<tcp::Listener> listener = tcp::listen_anywhere();
  EXPECT_TRUE(listener.ok());
  return listener->port;
}

/// What a rank of `world` is given by torchrun on hosts with one rank each.
Variables torchrun(int rank, int world, uint16_t port) {
  return {
      {"RANK", text(rank)},           {"WORLD_SIZE", text(world)},  {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "1"},      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", text(port - 1)},
      {"TORCHELASTIC_RUN_ID", "none"}};
}

Result<Seat> join(const NcclRanks& ranks, const Variables& variables, int device,
                  int64_t rendezvous_ms = 20'000) {
  CommOptions options;
  options.rendezvous_ms = rendezvous_ms;
  return create_env(lookup_in(variables), options,
                    [&](int32_t) -> Opened { return Opened(ranks.device(device)); });
}

/// The seat's rank, world and kind, once all have met.
std::string sound(const Result<Seat>& seat) {
  if (!seat.ok()) return outcome(seat.failure());
  Result<Call> call = (*seat)->begin(Operation::barrier);
  if (!call.ok()) return outcome(call.failure());
  if (const Status met = call->vote("barrier", {}); !met.ok()) return outcome(met);
  return text((*seat)->rank(), " of ", (*seat)->world(), ", ", (*seat)->kind());
}

/// What becomes of ranks with these variables.
std::vector<std::string> outcomes(const NcclRanks& ranks, const std::vector<Variables>& all,
                                  int64_t rendezvous_ms = 20'000) {
  return run_sound_ranks(RankKind::threads, static_cast<int>(all.size()), [&](int rank) {
    return sound(join(ranks, all[static_cast<size_t>(rank)], rank, rendezvous_ms));
  });
}

void expect_met(const std::vector<Variables>& all, const char* kind = "nccl") {
  const NcclRanks ranks(static_cast<int32_t>(all.size()));
  const std::vector<std::string> results = outcomes(ranks, all);
  for (size_t rank = 0; rank < results.size(); ++rank)
    EXPECT_EQ(results[rank], text(rank, " of ", results.size(), ", ", kind));
}

/// The resolver knows "node1" and answers nothing else; or it does not answer at all.
std::atomic<bool> resolver_hangs{false};
std::atomic<int> unknown_asked{0};
int stand_in_resolver(const char* host, const char* service, const addrinfo* hints,
                      addrinfo** found) {
  while (resolver_hangs) usleep(1000);
  const bool known = strcmp(host, "node1") == 0 || (strcmp(host, "late") == 0 && unknown_asked > 2);
  if (!known) ++unknown_asked;
  return known ? real_system_calls().getaddrinfo("127.0.0.1", service, hints, found) : EAI_NONAME;
}

class OwnResolver {
 public:
  OwnResolver() {
    // For ever: a thread that is left behind has it.
    static const SystemCalls table = [] {
      SystemCalls calls = real_system_calls();
      calls.getaddrinfo = stand_in_resolver;
      return calls;
    }();
    unknown_asked = 0;
    replace_system_calls(&table);
  }
  ~OwnResolver() {
    resolver_hangs = false;
    replace_system_calls(nullptr);
  }
};

// ---- They meet.

TEST(Launched, ranks_of_one_host_meet_under_each_launcher) {
  const std::string job = unique_name();
  const auto expect_local = [](auto variables_of) {
    std::vector<Variables> all;
    for (int rank = 0; rank < 3; ++rank) all.push_back(variables_of(text(rank)));
    expect_met(all, "local");
  };
  expect_local([&](const std::string& rank) {
    return Variables{{"ZERO_RANK", rank},
                     {"ZERO_WORLD_SIZE", "3"},
                     {"ZERO_LOCAL_WORLD_SIZE", "3"},
                     {"ZERO_JOB", job}};
  });
  expect_local([&](const std::string& rank) {
    return Variables{{"RANK", rank},
                     {"WORLD_SIZE", "3"},
                     {"LOCAL_WORLD_SIZE", "3"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", "29500"},
                     {"TORCHELASTIC_RUN_ID", job}};
  });
  expect_local([&](const std::string& rank) {
    return Variables{{"OMPI_COMM_WORLD_RANK", rank},
                     {"OMPI_COMM_WORLD_SIZE", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                     {"PMIX_NAMESPACE", job}};
  });
  expect_local([&](const std::string& rank) {
    return Variables{{"PMI_RANK", rank}, {"PMI_SIZE", "3"}, {"ZERO_JOB", job}};
  });
  expect_local([&](const std::string& rank) {
    return Variables{{"SLURM_PROCID", rank},
                     {"SLURM_NTASKS", "3"},
                     {"SLURM_STEP_NUM_NODES", "1"},
                     {"SLURM_JOB_ID", job},
                     {"SLURM_STEP_ID", "0"}};
  });
}

/// What zero-run gives one of three ranks.
Variables here(int rank, const std::string& job) {
  return {{"ZERO_RANK", text(rank)},
          {"ZERO_WORLD_SIZE", "3"},
          {"ZERO_LOCAL_WORLD_SIZE", "3"},
          {"ZERO_JOB", job}};
}

/// The comms of three ranks on one host whose devices do not all reach each other.
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
      apart(ranks, {{"ZERO_MASTER_ADDR", "127.0.0.1"}, {"ZERO_MASTER_PORT", text(free_port())}});
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank], text(rank, " of 3, nccl"));
}

TEST(Launched, ranks_of_several_hosts_meet_beside_the_port_of_torch) {
  const uint16_t port = free_port();
  // torch's own store, which nobody must talk to.
  Result<tcp::Listener> store = tcp::listen_anywhere(static_cast<uint16_t>(port - 1));
  ASSERT_TRUE(store.ok()) << store.failure().text();
  expect_met({torchrun(0, 3, port), torchrun(1, 3, port), torchrun(2, 3, port)});
  EXPECT_FALSE(tcp::accept_guest(store->fd.get()).valid());
}

TEST(Launched, tasks_of_slurm_meet_on_the_first_host_of_their_step) {
  const OwnResolver resolver;
  std::vector<Variables> all;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back({{"SLURM_PROCID", text(rank)},
                   {"SLURM_NTASKS", "2"},
                   {"SLURM_STEP_NUM_NODES", "2"},
                   {"SLURM_STEP_NODELIST", "node[1-2]"},
                   {"SLURM_JOB_ID", unique_name()},
                   {"SLURM_STEP_ID", "0"},
                   {"ZERO_JOB", text("slurm ", getpid())}});
  }
  expect_met(all);
}

TEST(Launched, any_launcher_on_several_hosts_is_served_by_ZERO_MASTER_ADDR) {
  const Variables where = {{"ZERO_MASTER_ADDR", "127.0.0.1"},
                           {"ZERO_MASTER_PORT", text(free_port())}};
  std::vector<Variables> mpi, hydra;
  for (int rank = 0; rank < 2; ++rank) {
    mpi.push_back(with(where, {{"OMPI_COMM_WORLD_RANK", text(rank)},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
    hydra.push_back(with(where, {{"PMI_RANK", text(rank)}, {"PMI_SIZE", "2"}}));
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
      (void)join(ranks, with(torchrun(0, 2, port), {{"MASTER_ADDR", host}}), 0, 1'000);
    });
    // Another address of this host: what listens at 127.0.0.1 alone is not there.
    bool reached = false;
    for (int tries = 0; tries < 60 && !reached; tries++) {
      usleep(10'000);
      Result<Fd> guest = tcp::start_connect(*tcp::to_address("127.0.0.2"), port);
      pollfd asked{guest.ok() ? guest->get() : -1, POLLOUT, 0};
      reached = poll(&asked, 1, 20) == 1 && tcp::connect_error(guest->get()) == 0;
    }
    root.join();
    EXPECT_EQ(reached, std::string(host) == "node1") << host;
  }
}

TEST(Launched, a_name_that_is_not_known_yet_is_asked_for_again) {
  const OwnResolver resolver;
  const uint16_t port = free_port();
  expect_met({with(torchrun(0, 2, port), {{"MASTER_ADDR", "late"}}),
              with(torchrun(1, 2, port), {{"MASTER_ADDR", "late"}})});
}

TEST(Launched, a_world_of_one_opens_its_device_and_needs_no_place_to_meet) {
  const NcclRanks ranks(1);
  EXPECT_EQ(sound(join(ranks, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0)), "0 of 1, solo");
}

// ---- They do not.

TEST(Launched, a_rank_that_does_not_come_is_named) {
  const NcclRanks ranks(2);
  const uint16_t port = free_port();
  const auto results = outcomes(ranks, {torchrun(0, 4, port), torchrun(2, 4, port)}, 400);
  EXPECT_TRUE(contains(results[0],
                       "ZERO_ERR_RENDEZVOUS: rank 0 of 4 that torchrun started: rank "
                       "1, rank 3 did not connect to rank 0 within "))
      << results[0];
  EXPECT_TRUE(contains(results[0], "(MASTER_ADDR is '127.0.0.1', and the port is next to "))
      << results[0];
  EXPECT_FALSE(contains(results[1], "nccl")) << results[1];
}

TEST(Launched, a_rank_on_this_host_that_does_not_come_is_named) {
  const NcclRanks ranks(1);
  const Variables alone = {{"ZERO_RANK", "0"},
                           {"ZERO_WORLD_SIZE", "2"},
                           {"ZERO_LOCAL_WORLD_SIZE", "2"},
                           {"ZERO_JOB", unique_name()}};
  const auto results = outcomes(ranks, {alone}, 200);
  EXPECT_TRUE(contains(results[0], "ZERO_ERR_RENDEZVOUS: rank 0 of 2 that zero-run started: "))
      << results[0];
  EXPECT_TRUE(contains(results[0], "rank 1")) << results[0];
}

TEST(Launched, where_rank_0_is_not_is_named_with_what_happened_there) {
  const NcclRanks ranks(1);
  const uint16_t port = free_port();
  const auto results = outcomes(ranks, {torchrun(1, 2, port)}, 200);
  EXPECT_TRUE(contains(results[0],
                       "ZERO_ERR_RENDEZVOUS: rank 1 of 2 that torchrun started: rank 0 "
                       "was not reached within "))
      << results[0];
  EXPECT_TRUE(contains(results[0], text(" ms at port ", port, " of 127.0.0.1 (Connection refused")))
      << results[0];
}

TEST(Launched, a_host_that_nobody_knows_is_named) {
  const OwnResolver resolver;
  const NcclRanks ranks(1);
  const Variables lost = with(torchrun(1, 2, free_port()), {{"MASTER_ADDR", "nowhere"}});
  const auto results = outcomes(ranks, {lost}, 200);
  EXPECT_TRUE(contains(results[0], "ZERO_ERR_RENDEZVOUS: ")) << results[0];
  EXPECT_TRUE(contains(results[0], "no address of host 'nowhere' was found within 200 ms: "))
      << results[0];
}

TEST(Launched, a_resolver_that_does_not_answer_ends_with_the_deadline) {
  const OwnResolver resolver;
  resolver_hangs = true;
  const NcclRanks ranks(1);
  const Variables lost = with(torchrun(0, 2, free_port()), {{"MASTER_ADDR", "node1"}});
  const auto results = outcomes(ranks, {lost}, 200);
  EXPECT_TRUE(contains(results[0], "within 200 ms: the resolver did not answer")) << results[0];
}

TEST(Launched, a_port_that_another_program_has_is_named_by_rank_0) {
  const NcclRanks ranks(2);
  Result<tcp::Listener> other = tcp::listen_anywhere();
  ASSERT_TRUE(other.ok());
  const auto results =
      outcomes(ranks, {torchrun(0, 2, other->port), torchrun(1, 2, other->port)}, 300);
  EXPECT_TRUE(contains(results[0], text("ZERO_ERR_RENDEZVOUS: rank 0 of 2 that torchrun started: "
                                        "port ",
                                        other->port, " is in use: set ZERO_MASTER_PORT")))
      << results[0];
  EXPECT_TRUE(contains(results[1], "of 127.0.0.1 (no answer)")) << results[1];
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
  const auto results = outcomes(ranks,
                                {torchrun(0, 2, port), torchrun(1, 2, port),
                                 with(torchrun(1, 2, port), {{"ZERO_JOB", "another"}})},
                                1'500);
  EXPECT_EQ(results[0], "0 of 2, nccl");
  EXPECT_EQ(results[1], "1 of 2, nccl");
  EXPECT_TRUE(contains(results[2], "ZERO_ERR_RENDEZVOUS: ")) << results[2];
}

TEST(Launched, strangers_do_not_disturb_the_ranks) {
  const NcclRanks ranks(2);
  const uint16_t port = free_port();
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    const std::string words = "GET / HTTP/1.1\r\n\r\n";
    for (int i = 0; !over; ++i) {
      Result<Fd> fd = tcp::start_connect(*tcp::to_address("127.0.0.1"), port);
      usleep(2'000);
      if (fd.ok() && i % 2 == 0) (void)tcp::send_some(fd->get(), std::as_bytes(std::span(words)));
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

// ---- Ranks that cannot go on.

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
                            : text("ZERO_ERR_PEER: rank ", rank, " of 3 that ",
                                   one_host ? "zero-run" : "torchrun", " started: rank ", culprit,
                                   " in zero_comm_create_env: ZERO_ERR_ARGUMENT: no such device");
        EXPECT_EQ(said.substr(0, expected.size()), expected);
      }
    }
  }
}

/// The third is that for the control segment of the comm that the ranks try.
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
    SystemCalls calls = real_system_calls();
    calls.memfd_create = third_memfd_that_fails;
    if (rank == 0) replace_system_calls(&calls);
    // It has met the other rank, and has heard that both have a device.
    if (rank == 1) watch_points({"exchange.written", 3}, die);
    const Variables variables =
        with(here(rank, job), {{"ZERO_WORLD_SIZE", "2"}, {"ZERO_LOCAL_WORLD_SIZE", "2"}});
    const std::string said = sound(join(ranks, variables, rank));
    replace_system_calls(nullptr);
    return said;
  });
  EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR_SYSTEM: rank 0 of 2 that zero-run started: "))
      << ends[0].result;
  EXPECT_TRUE(contains(ends[0].result, ", directly': creating shared memory 'zero.control': "))
      << ends[0].result;
}

TEST(Launched, a_rank_that_cannot_go_on_says_so_also_where_nobody_comes) {
  const Variables variables = torchrun(0, 2, free_port());
  CommOptions options;
  options.rendezvous_ms = 100;
  const auto refuse = [](int32_t) { return Opened(Status(ZERO_ERR_UNSUPPORTED, "no driver")); };
  EXPECT_EQ(outcome(create_env(lookup_in(variables), options, refuse).status()),
            "ZERO_ERR_UNSUPPORTED: rank 0 of 2 that torchrun started: no driver");
}

TEST(Launched, two_processes_with_one_rank_are_both_named) {
  const uint16_t port = free_port();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int process) {
    const NcclRanks ranks(1);
    if (process == 2) usleep(300'000);
    return sound(join(ranks, torchrun(process == 0 ? 0 : 1, 3, port), 0, 2'000));
  });
  EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR_RENDEZVOUS: ")) << ends[0].result;
  EXPECT_TRUE(contains(ends[0].result, " both came as rank 1 (")) << ends[0].result;
}

TEST(Launched, each_rank_opens_the_device_of_its_place_on_its_host) {
  const NcclRanks ranks(2);
  const uint16_t port = free_port();
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    const Variables variables = with(torchrun(rank, 2, port), {{"LOCAL_RANK", text(5 + rank)}});
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
  EXPECT_EQ(outcome(create_env(lookup_in(variables), {}, {}).status()),
            "ZERO_ERR_UNSUPPORTED: torchrun started ranks on several hosts (LOCAL_WORLD_SIZE is 1 "
            "and WORLD_SIZE is 2), which libzero joins on GPUs only: start them all on one host, "
            "set device to ZERO_DEVICE_CUDA, or bring collectives of your own with "
            "zero_comm_create_user");
}

}  // namespace
}  // namespace zero::test
