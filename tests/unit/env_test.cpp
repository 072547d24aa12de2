// SPDX-License-Identifier: Apache-2.0
// How each launcher's variables, as seen on its ranks, are understood.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/launch.h"
#include "comm/process.h"
#include "support/statuses.h"
#include "support/variables.h"

namespace zero {
namespace {

using test::lookup_in;
using test::Variables;
using test::with;

Variables without(Variables variables, std::initializer_list<const char*> names) {
  for (const char* name : names) variables.erase(name);
  return variables;
}

const Variables kZeroRun(
    "ZERO_RANK=1 ZERO_WORLD_SIZE=4 ZERO_LOCAL_RANK=1 ZERO_LOCAL_WORLD_SIZE=4 "
    "ZERO_JOB=zero-run-0123");
const Variables kTorchrun(
    "RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
    "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0");
const Variables kOpenMpi(
    "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
    "PMIX_NAMESPACE=1882521601 PMIX_RANK=0 OMPI_MCA_ess_base_jobid=1882521601 "
    "OMPI_MCA_orte_precondition_transports=1d0d-6619");
const Variables kHydra("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=8");
const Variables kSlurm(
    "SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_JOB_ID=200505 SLURM_STEP_ID=7 SLURM_NNODES=1 "
    "SLURM_STEP_NUM_NODES=1");

const Variables kLaunchers[] = {kZeroRun, kTorchrun, kOpenMpi, kHydra, kSlurm};

Launched launched(const Variables& variables) {
  return test::made(read_launch(lookup_in(variables)));
}

void expect_refused(const Variables& variables, std::initializer_list<const char*> words) {
  for (const char* word : words)
    test::expect_failure(read_launch(lookup_in(variables)), ZERO_ERR_ARGUMENT, word);
}

TEST(Env, nothing_set_is_one_rank) {
  const Launched launch = launched({});
  EXPECT_EQ(launch.launcher, nullptr);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.world, 1);
  EXPECT_EQ(launch.local_rank, 0);
}

TEST(Env, each_launcher_is_understood) {
  const struct {
    const char* launcher;
    Variables variables;
    int32_t rank, world;
    const char* job;
  } cases[] = {
      {"zero-run", kZeroRun, 1, 4, "zero-run-0123"},
      {"torchrun", kTorchrun, 3, 4, "torchrun:none:127.0.0.1:29500:0"},
      {"Open MPI", kOpenMpi, 0, 2, "openmpi:1882521601:1882521601:1d0d-6619"},
      {"Hydra", kHydra, 1, 2, ""},
      {"Slurm", kSlurm, 2, 3, "slurm:200505:7"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.launcher);
    const Launched launch = launched(one.variables);
    EXPECT_STREQ(launch.launcher, one.launcher);
    EXPECT_EQ(launch.rank, one.rank);
    EXPECT_EQ(launch.world, one.world);
    EXPECT_EQ(launch.job, one.job);
    EXPECT_EQ(launch.hydra, std::string(one.launcher) == "Hydra");
  }
}

TEST(Env, the_first_complete_set_wins) {
  EXPECT_STREQ(launched(with(kSlurm, kHydra)).launcher, "Hydra");
  EXPECT_STREQ(launched(with(with(kSlurm, kHydra), kOpenMpi)).launcher, "Open MPI");
  EXPECT_STREQ(launched(with(kOpenMpi, kTorchrun)).launcher, "torchrun");
  EXPECT_STREQ(launched(with(kTorchrun, kZeroRun)).launcher, "zero-run");
  // An incomplete set before it does not.
  EXPECT_STREQ(launched(with(kOpenMpi, "RANK=9")).launcher, "Open MPI");
}

TEST(Env, a_world_of_one_beside_a_set_that_says_more_is_refused) {
  const Variables stale = "RANK=0 WORLD_SIZE=1";
  expect_refused(with(kOpenMpi, stale),
                 {"WORLD_SIZE is 1 (torchrun), but OMPI_COMM_WORLD_SIZE is 2 (Open MPI)",
                  "unset RANK and WORLD_SIZE", "set ZERO_RANK and ZERO_WORLD_SIZE"});
  expect_refused(with(kHydra, stale), {"WORLD_SIZE is 1", "PMI_SIZE is 2"});
  expect_refused(with(kSlurm, stale), {"WORLD_SIZE is 1", "SLURM_NTASKS is 3"});
  expect_refused(with(kSlurm, "PMI_RANK=0 PMI_SIZE=1"),
                 {"PMI_SIZE is 1 (Hydra), but SLURM_NTASKS is 3 (Slurm)"});
}

TEST(Env, a_world_of_one_that_is_meant_goes_on) {
  const Variables stale = "RANK=0 WORLD_SIZE=1";
  // ZERO_* decides, whatever else is set.
  EXPECT_EQ(launched(with(kOpenMpi, "ZERO_RANK=0 ZERO_WORLD_SIZE=1")).world, 1);
  // Variables of an allocation, outside of its steps.
  EXPECT_EQ(launched(with(without(kSlurm, {"SLURM_STEP_ID"}), stale)).world, 1);
  // torchrun with one process, in a step of Slurm and next to mpirun, which started its agents.
  const Variables agent = with(stale, "TORCHELASTIC_RUN_ID=none");
  EXPECT_EQ(launched(with(kSlurm, agent)).world, 1);
  EXPECT_EQ(launched(with(kOpenMpi, agent)).world, 1);
  // An incomplete set, and one with the same world.
  EXPECT_EQ(launched(with(stale, "OMPI_COMM_WORLD_SIZE=2")).world, 1);
  EXPECT_EQ(launched(with(stale, "PMI_RANK=0 PMI_SIZE=1")).world, 1);
  // If the selected set has a larger world, the other sets may differ.
  EXPECT_EQ(launched(with(kTorchrun, "PMI_RANK=0 PMI_SIZE=1")).world, 4);
}

TEST(Env, the_log_says_launcher_rank_and_world) {
  std::vector<std::string> messages;
  set_log(
      [](void* out, int32_t, const char* message) {
        static_cast<std::vector<std::string>*>(out)->push_back(message);
      },
      &messages, ZERO_LOG_INFO);
  EXPECT_TRUE(create_env(lookup_in("RANK=0 WORLD_SIZE=1"), {}, nullptr).ok());
  EXPECT_TRUE(create_env(lookup_in({}), {}, nullptr).ok());
  set_log(nullptr, nullptr, ZERO_LOG_INFO);
  EXPECT_EQ(messages, (std::vector<std::string>{"zero_comm_create_env: torchrun, rank 0 of 1",
                                                "zero_comm_create_env: no launcher, rank 0 of 1"}));
}

TEST(Env, half_a_set_is_refused) {
  expect_refused("RANK=1", {"RANK is '1', but WORLD_SIZE is not set"});
  expect_refused("ZERO_WORLD_SIZE=4", {"ZERO_WORLD_SIZE is '4', but ZERO_RANK is not set"});
  expect_refused("PMI_RANK=0 PMI_SIZE=", {"PMI_RANK is '0', but PMI_SIZE is not set"});
  expect_refused("OMPI_COMM_WORLD_SIZE=2", {"OMPI_COMM_WORLD_RANK is not set"});
}

TEST(Env, what_is_no_number_in_range_is_refused) {
  const auto refuse = [](const char* rank, const char* world, const char* words) {
    expect_refused(with(kTorchrun, {{"RANK", rank}, {"WORLD_SIZE", world}}), {words});
  };
  refuse("4", "4", "RANK is '4', not a number from 0 to 3");
  refuse("-1", "4", "RANK is '-1'");
  refuse("one", "4", "RANK is 'one'");
  refuse("1x", "4", "RANK is '1x'");
  refuse(" 1", "4", "RANK is ' 1'");
  refuse("0", "0", "WORLD_SIZE is '0', not a number from 1 to 2147483647");
  refuse("0", "99999999999999999999", "WORLD_SIZE is '99999999999999999999'");
  expect_refused(with(kTorchrun, "LOCAL_WORLD_SIZE=5"),
                 {"LOCAL_WORLD_SIZE is '5', not a number from 1 to 4"});
}

TEST(Env, ranks_on_several_hosts_are_noticed_and_by_what) {
  const auto several = [](const Variables& variables, const char* evidence) {
    EXPECT_EQ(launched(variables).hosts, Hosts::several);
    EXPECT_EQ(launched(variables).evidence, evidence);
  };
  several(with(kZeroRun, "ZERO_LOCAL_WORLD_SIZE=2"),
          "ZERO_LOCAL_WORLD_SIZE is 2 and ZERO_WORLD_SIZE is 4");
  several(with(kTorchrun, "LOCAL_WORLD_SIZE=2"), "LOCAL_WORLD_SIZE is 2 and WORLD_SIZE is 4");
  several(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE=1"),
          "OMPI_COMM_WORLD_LOCAL_SIZE is 1 and OMPI_COMM_WORLD_SIZE is 2");
  several(with(kHydra, "MPI_LOCALNRANKS=1"), "MPI_LOCALNRANKS is 1 and PMI_SIZE is 2");
  several(with(kSlurm, "SLURM_STEP_NUM_NODES=2"), "SLURM_STEP_NUM_NODES is 2");
  several(with(without(kSlurm, {"SLURM_STEP_NUM_NODES"}), "SLURM_NNODES=3"), "SLURM_NNODES is 3");
  // Slurm's numbers, passed on by a job script.
  several(with(kSlurm, "RANK=0 WORLD_SIZE=3 SLURM_STEP_NUM_NODES=3"), "SLURM_STEP_NUM_NODES is 3");
}

TEST(Env, one_host_is_known_only_where_a_variable_says_so) {
  for (const Variables& variables : kLaunchers) EXPECT_EQ(launched(variables).hosts, Hosts::one);
  EXPECT_EQ(launched(without(kTorchrun, {"LOCAL_WORLD_SIZE"})).hosts, Hosts::unknown);
}

TEST(Env, the_place_among_the_ranks_of_a_host_is_the_launchers) {
  const std::pair<Variables, int32_t> rows[] = {
      {with(kZeroRun, "ZERO_LOCAL_RANK=3"), 3},
      {with(kTorchrun, "LOCAL_RANK=2"), 2},
      {with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK=1"), 1},
      {with(kHydra, "MPI_LOCALRANKID=0"), 0},
      {with(kSlurm, "SLURM_LOCALID=1"), 1},
      {"RANK=5 WORLD_SIZE=8 SLURM_LOCALID=1", 1},
      {"RANK=0 WORLD_SIZE=1 LOCAL_RANK=2", 2},
      {with(kOpenMpi, "ZERO_LOCAL_RANK=7"), 7},
      // Without a variable, it is the rank if there is one host.
      {without(kTorchrun, {"LOCAL_RANK"}), 3},
      {with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE=1"), -1},
      {without(kTorchrun, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}), -1}};
  for (const auto& [variables, place] : rows)
    EXPECT_EQ(launched(variables).local_rank, place) << ::testing::PrintToString(variables);
  expect_refused(with(kTorchrun, "LOCAL_RANK=x"), {"LOCAL_RANK is 'x'"});
}

// ---- Where ranks on several hosts meet.

/// Returns "host port", "" if there is none, or the error.
std::string meetpoint(const Variables& variables) {
  const Lookup lookup = lookup_in(variables);
  const Result<std::optional<Meetpoint>> point = read_meetpoint(lookup, launched(variables));
  if (!point.ok()) return text(code_name(point.failure().code()), ": ", point.failure().text());
  return *point ? text((*point)->host, ' ', (*point)->port) : "";
}

const Variables kTwoHosts = with(kTorchrun, "LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1");
const Variables kTwoNodes = with(kSlurm, "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=gpu[07-08]");

TEST(Env, ranks_of_one_host_meet_by_name) {
  for (const Variables& variables : kLaunchers) EXPECT_EQ(meetpoint(variables), "");
  EXPECT_EQ(meetpoint("RANK=0 WORLD_SIZE=2"), "");
}

TEST(Env, ranks_of_several_hosts_meet_beside_the_port_of_torch) {
  EXPECT_EQ(meetpoint(kTwoHosts), "node1 29501");
  EXPECT_EQ(meetpoint(with(kTwoHosts, "MASTER_PORT=65535")), "node1 65534");
  EXPECT_EQ(meetpoint(without(kTorchrun, {"LOCAL_WORLD_SIZE"})), "127.0.0.1 29501");
  EXPECT_EQ(meetpoint(with(kTwoHosts, "MASTER_PORT=http")),
            "ZERO_ERR_ARGUMENT: MASTER_PORT is 'http', not a number from 1 to 65535");
}

TEST(Env, ZERO_MASTER_ADDR_and_PORT_come_first) {
  const Variables own = "ZERO_MASTER_ADDR=10.1.2.3 ZERO_MASTER_PORT=7";
  for (const Variables& variables : kLaunchers)
    EXPECT_EQ(meetpoint(with(variables, own)), "10.1.2.3 7");
  EXPECT_EQ(meetpoint(with(kTwoHosts, own)), "10.1.2.3 7");
  EXPECT_EQ(meetpoint(with(kTwoHosts, "ZERO_MASTER_PORT=7")), "node1 7");
  EXPECT_EQ(meetpoint(with(kTwoHosts, "ZERO_MASTER_ADDR=other")), "other 29501");
  EXPECT_EQ(meetpoint(with(kTwoHosts, "ZERO_MASTER_PORT=0")),
            "ZERO_ERR_ARGUMENT: ZERO_MASTER_PORT is '0', not a number from 1 to 65535");
}

TEST(Env, tasks_of_slurm_meet_on_its_first_host_at_a_port_of_their_step) {
  const std::string one = meetpoint(kTwoNodes);
  EXPECT_EQ(one.size(), std::string("gpu07 20000").size());
  EXPECT_EQ(one.substr(0, 7), "gpu07 2");
  EXPECT_EQ(one, meetpoint(with(kTwoNodes, "SLURM_PROCID=0")));
  EXPECT_NE(one, meetpoint(with(kTwoNodes, "SLURM_STEP_ID=8")));
  EXPECT_NE(one, meetpoint(with(kTwoNodes, "SLURM_JOB_ID=8")));
}

TEST(Env, what_is_missing_to_meet_is_asked_for) {
  EXPECT_EQ(meetpoint(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE=1")),
            "ZERO_ERR_ARGUMENT: Open MPI started ranks on several hosts "
            "(OMPI_COMM_WORLD_LOCAL_SIZE is 1 and OMPI_COMM_WORLD_SIZE is 2), but no variable says "
            "where rank 0 is: set ZERO_MASTER_ADDR to its host's name or address, and "
            "ZERO_MASTER_PORT to a free port there");
  EXPECT_EQ(meetpoint(with(kHydra, "MPI_LOCALNRANKS=1 ZERO_MASTER_ADDR=a")),
            "ZERO_ERR_ARGUMENT: ZERO_MASTER_ADDR is 'a', but no variable gives the port where the "
            "ranks meet: set ZERO_MASTER_PORT to a free port on that host");
}

TEST(Env, the_first_host_of_a_list) {
  const struct {
    const char *list, *host;
  } cases[] = {{"node1", "node1"},
               {"node1,node2", "node1"},
               {"node[3]", "node3"},
               {"node[03-05,9],other", "node03"},
               {"node[9,03-05]", "node9"},
               {"rack[1-2]n[03-04],x", "rack1n03"},
               {"a-b[1-2].net", "a-b1.net"},
               {"node[3", "node3"},
               {"", ""}};
  for (const auto& one : cases) EXPECT_EQ(first_host(one.list), one.host);
}

TEST(Env, a_job_on_several_hosts_has_one_word_whatever_each_host_counts) {
  const Variables other_host = "TORCHELASTIC_RESTART_COUNT=1 MASTER_ADDR=localhost";
  EXPECT_EQ(launched(kTwoHosts).job_of_all_hosts,
            launched(with(kTwoHosts, other_host)).job_of_all_hosts);
  EXPECT_NE(launched(kTwoHosts).job_of_all_hosts,
            launched(with(kTwoHosts, "TORCHELASTIC_RUN_ID=x")).job_of_all_hosts);
  EXPECT_EQ(launched(with(kTwoHosts, "ZERO_JOB=mine")).job_of_all_hosts, "mine");
}

TEST(Env, part_of_a_larger_allocation_is_a_job_of_its_own) {
  EXPECT_EQ(launched(with(kSlurm, "SLURM_NNODES=4")).world, 3);
  EXPECT_EQ(launched(with(kTorchrun, "SLURM_NNODES=4")).world, 4);
  EXPECT_EQ(launched("RANK=0 WORLD_SIZE=1 SLURM_NNODES=4").world, 1);
  EXPECT_EQ(launched("SLURM_PROCID=0 SLURM_NTASKS=1").world, 1);
}

TEST(Env, jobs_of_one_launcher_get_different_names) {
  const auto differ = [](const Variables& one, const Variables& change) {
    EXPECT_NE(launched(one).job, launched(with(one, change)).job);
  };
  differ(kTorchrun, "MASTER_PORT=29501");
  differ(kTorchrun, "TORCHELASTIC_RUN_ID=abc");
  differ(kTorchrun, "TORCHELASTIC_RESTART_COUNT=1");
  differ(kOpenMpi, "PMIX_NAMESPACE=5");
  differ(kOpenMpi, "OMPI_MCA_orte_precondition_transports=2");
  differ(kSlurm, "SLURM_STEP_ID=8");
  differ(kSlurm, "SLURM_JOB_ID=8");
  differ(kSlurm, "SLURM_RESTART_COUNT=1");
}

TEST(Env, ZERO_JOB_is_the_name_under_every_launcher) {
  for (const Variables& variables : kLaunchers) {
    const Launched launch = launched(with(variables, "ZERO_JOB=mine"));
    EXPECT_EQ(launch.job, "mine");
    EXPECT_FALSE(launch.hydra);
  }
}

TEST(Env, a_job_that_no_variable_tells_apart_has_no_name) {
  EXPECT_EQ(launched("RANK=0 WORLD_SIZE=2").job, "");
  EXPECT_EQ(launched(without(kZeroRun, {"ZERO_JOB"})).job, "");
}

TEST(Env, ranks_that_a_slurm_step_started_by_other_means_are_named_by_it) {
  const Variables step = "SLURM_JOB_ID=1 SLURM_STEPID=2";
  EXPECT_EQ(launched(with(kHydra, step)).job, "slurm:1:2");
  EXPECT_EQ(launched(with(step, "RANK=0 WORLD_SIZE=2")).job, "slurm:1:2");
}

TEST(Env, slurm_outside_of_a_step_is_one_rank_or_refused) {
  // In salloc's shell, and in a batch script without --ntasks.
  EXPECT_EQ(launched("SLURM_NTASKS=4").launcher, nullptr);
  EXPECT_EQ(launched("SLURM_PROCID=0").launcher, nullptr);
  // In a batch script with it, the other ranks would never arrive.
  expect_refused(without(kSlurm, {"SLURM_STEP_ID"}), {"SLURM_NTASKS is 3", "srun"});
}

constexpr CommOptions kLeft = {-1, -1, -1};

TEST(Env, timeouts_come_from_the_caller_then_variables_then_defaults) {
  const Lookup lookup = lookup_in("ZERO_TIMEOUT_MS=7 ZERO_LATE_MS=8");
  CommOptions given = kLeft;
  given.late_ms = 99;
  const CommOptions options = test::made(read_timeouts(lookup, given));
  EXPECT_EQ(options.timeout_ms, 7);
  EXPECT_EQ(options.late_ms, 99);
  EXPECT_EQ(options.rendezvous_ms, 120'000);
}

TEST(Env, timeouts_that_are_no_time_are_refused) {
  for (const char* value : {"0", "-5", "1s", "1e3", "99999999999999999999"})
    test::expect_failure(read_timeouts(lookup_in({{"ZERO_RENDEZVOUS_MS", value}}), kLeft),
                         ZERO_ERR_ARGUMENT, text("ZERO_RENDEZVOUS_MS is '", value, "'"));
}

TEST(Env, a_process_is_read_even_if_its_command_looks_like_fields) {
  const std::string tail = " S 41 1 1 0 -1 4194304 1 0 0 0 1 0 0 0 20 0 1 0 987654321 4 5 6\n";
  for (const char* command : {"hydra_pmi_proxy", "a) S 7 (b", ") R 9", ""}) {
    const auto stat = parse_process_stat("123 (" + std::string(command) + ")" + tail);
    ASSERT_TRUE(stat.has_value());
    EXPECT_EQ(stat->command, command);
    EXPECT_EQ(stat->parent, 41);
    EXPECT_EQ(stat->started, 987654321u);
  }
  for (const char* broken : {"", "123 (x", "123 (x)", "123 (x) S", "123 (x) S y 1", ")("}) {
    EXPECT_FALSE(parse_process_stat(broken).has_value()) << broken;
  }
}

TEST(Env, long_jobs_get_names_of_their_own_that_fit) {
  EXPECT_EQ(comm_name(std::string(64, 'a')), std::string(64, 'a'));
  const std::string one = comm_name(std::string(65, 'a'));
  const std::string other = comm_name(text(std::string(64, 'a'), "b"));
  EXPECT_LE(one.size(), 64u);
  EXPECT_NE(one, other);
  EXPECT_EQ(one, comm_name(std::string(65, 'a')));
}

}  // namespace
}  // namespace zero
