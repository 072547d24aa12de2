// SPDX-License-Identifier: Apache-2.0
// Jobs that choose the same name, and other users' processes that look like the job's own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <thread>

#include "fault/rendezvous_ranks.h"
#include "zero.h"

namespace zero::test {
namespace {

/// Returns the sum over the ranks of this process's comm, or why there is none.
std::string sum_of_group(const std::string& name, int rank, int world, int32_t mine) {
  zero_comm_options options;
  ZERO_INIT(options);
  options.rendezvous_ms = 5'000;
  zero_comm* comm = nullptr;
  if (zero_comm_create_local(&comm, name.c_str(), rank, world, &options) != ZERO_OK)
    return zero_last_error();
  int32_t sum = mine;
  const zero_status status = zero_comm_all_reduce(comm, &sum, 1, ZERO_INT32, ZERO_SUM);
  const std::string said = status == ZERO_OK ? text(sum) : zero_last_error();
  zero_comm_free(comm);
  return said;
}

/// A launcher tells each rank which job it belongs to.
TEST(Jobs, that_choose_one_name_never_mix) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = unique_name();
    const std::vector<std::string> sums = run_sound_ranks(RankKind::processes, 6, [&](int i) {
      const int job = i % 2;
      setenv("ZERO_JOB", job == 0 ? "the-first" : "the-second", 1);
      return sum_of_group(name, i / 2, 3, job == 0 ? 1 : 100);
    });
    for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i % 2 == 0 ? "3" : "300");
  }
}

TEST(Jobs, a_process_of_another_job_at_the_right_place_is_told_so) {
  const std::string name = unique_name();
  const std::string address = local::address_of_comm(name, "the word");
  std::string answer;
  std::thread other([&] {
    Link connection = dial_at(address);
    Result<local::Life> life = local::Life::begin();
    introduce(connection, hello_of(1, 2), life->page(), "another word");
    answer = hear_refusal(connection);
    EXPECT_EQ(outcome(create_local(name, 1, 2, within(kLongMs), nullptr, "the word")), "ok");
  });
  EXPECT_EQ(outcome(create_local(name, 0, 2, within(kLongMs), nullptr, "the word")), "ok");
  other.join();
  EXPECT_TRUE(contains(answer, text("rendezvous '", name, "'"),
                       ", which holds this name, belongs to another job"));
}

TEST(Jobs, a_rank_takes_no_rank_0_that_does_not_know_the_word) {
  const std::string name = unique_name();
  Fd listener;
  ASSERT_EQ(listen_at(place_of(local::address_of_comm(name, "the word")), &listener), 0);
  std::thread other([&] {
    Link connection = accept_one(listener);
    connection.send(FrameKind::welcome, 0, as_payload(Welcome()));
    usleep(50'000);
  });
  const std::string said = outcome(create_local(name, 1, 2, within(kLongMs), nullptr, "the word"));
  other.join();
  EXPECT_TRUE(contains(said, "which holds this name, belongs to another job"));
}

TEST(Jobs, a_place_says_neither_name_nor_word) {
  const std::string address = local::address_of_comm("training", "3f9c");
  EXPECT_FALSE(contains(address, "training") || contains(address, "3f9c")) << address;
  EXPECT_NE(address, local::address_of_comm("training", "3f9d"));
  EXPECT_NE(address, local::address_of_comm("trainin", "g3f9c"));
}

/// Enters a namespace where this process has no mapped user, so that all processes seem to be its
/// user's.
bool enter_user_namespace() { return unshare(CLONE_NEWUSER) == 0 && geteuid() == 65534; }

bool can_enter_user_namespace() {
  const pid_t pid = fork();
  if (pid == 0) _exit(enter_user_namespace() ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  return status == 0;
}

TEST(Jobs, where_users_look_alike_the_word_has_to_prove_a_rank) {
  if (!can_enter_user_namespace()) GTEST_SKIP() << "needs user namespaces";
  const std::string name = unique_name();
  for (const std::string word : {"", "the word"}) {
    const std::vector<std::string> results = run_sound_ranks(RankKind::processes, 3, [&](int rank) {
      if (!enter_user_namespace()) return std::string("no namespace");
      if (rank < 2) {
        if (rank == 1) usleep(300'000);  // the intruder comes first
        return outcome(create_local(name, rank, 2, within(2'000), nullptr, word));
      }
      Link connection = dial_at(local::address_of_comm(name, word));
      if (connection.fd() < 0) return std::string("nobody");
      Introduction hello = hello_of(1, 2);
      hello.limit_ms = hello.remaining_ms = 2'000;
      Result<local::Life> life = local::Life::begin();
      introduce(connection, hello, life->page());
      return hear_refusal(connection);
    });
    for (size_t rank = 0; rank < 2; ++rank) {
      if (word.empty()) {
        EXPECT_TRUE(contains(results[rank], "user 65534 stands for every user", "set ZERO_JOB"));
      } else {
        EXPECT_EQ(results[rank], "ok");
      }
    }
    EXPECT_TRUE(word.empty() || contains(results[2], "belongs to another job")) << results[2];
  }
}

std::string network_namespace() {
  struct stat space {};
  EXPECT_EQ(fstatat(AT_FDCWD, "/proc/self/ns/net", &space, 0), 0);
  return text("network namespace ", space.st_ino);
}

TEST(Jobs, who_finds_nobody_says_as_which_user_in_which_network_namespace_by_which_name) {
  const pid_t pid = fork();
  if (pid == 0) _exit(unshare(CLONE_NEWNET) == 0 ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) GTEST_SKIP() << "needs to make a network namespace";
  const std::string name = unique_name();
  const std::string here = network_namespace();
  const std::vector<std::string> results = run_sound_ranks(RankKind::processes, 2, [&](int rank) {
    if (rank == 1 && unshare(CLONE_NEWNET) != 0) return std::string("no namespace");
    const std::string said = outcome(create_local(name, rank, 2, within(300)));
    EXPECT_TRUE(contains(said, text("user ", geteuid(), " in ", network_namespace(), " for"),
                         text("for the name '", local::address_of_comm(name), "'")));
    EXPECT_EQ(contains(said, here), rank == 0) << said;
    return said;
  });
  EXPECT_TRUE(contains(results[0], "rank 1 did not arrive within 300 ms; "));
  EXPECT_TRUE(contains(results[1], "rank 0 did not arrive within 300 ms; "));
}

}  // namespace
}  // namespace zero::test
