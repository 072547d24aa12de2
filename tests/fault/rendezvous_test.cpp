// SPDX-License-Identifier: Apache-2.0
// Ranks that do not find each other: strangers, ranks with different arguments, and ranks that are
// missing or die. A group forms on all ranks or on none, and nothing is left.
#include "comm/local/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "fault/rendezvous_ranks.h"
#include "support/nightly.h"
#include "support/points.h"
#include "support/scratch.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

using Ranks = std::vector<std::string>;

bool name_is_taken(const std::string& name) {
  std::ifstream file("/proc/net/unix");
  std::stringstream content;
  content << file.rdbuf();
  return contains(content.str(), "@" + local::address_of_comm(name));
}

// ---- Strangers.

TEST(Rendezvous, strangers_are_dropped_and_end_nothing) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const std::string name = unique_name();
    std::vector<Link> silent;
    std::thread last([&] { EXPECT_EQ(outcome(create_local(name, 0, 2, within(kLongMs))), "ok"); });
    for (int i = 0; i < 10; ++i) {
      Link stranger = dial(name);
      std::vector<std::byte> noise(random() % 3000);
      for (std::byte& one : noise) one = std::byte(random());
      const auto kind = static_cast<FrameKind>(random() % 9 + (i % 2 ? 0 : 2));
      const int odd = STDERR_FILENO;
      if (i % 3 == 0) {
        send(stranger.fd(), noise.data(), noise.size(), MSG_NOSIGNAL);
      } else if (i % 3 == 1) {  // a valid beginning, then noise
        if (noise.size() == sizeof(Introduction)) noise.pop_back();
        stranger.send(kind, random(), noise, std::span(&odd, i % 2 ? 1 : 0));
      } else {
        Prefix prefix;
        prefix.kind = kind;
        send(stranger.fd(), &prefix, sizeof prefix, MSG_NOSIGNAL);
      }
      if (i % 4 == 0) silent.push_back(std::move(stranger));
    }
    EXPECT_EQ(outcome(create_local(name, 1, 2, within(kLongMs))), "ok");
    last.join();
  }
}

/// Sends hellos as rank 1 of 3 without a page, with another file, and with a page of another size.
void say_hello_unsoundly(const std::string& name) {
  Introduction hello = hello_of(1, 3);
  hello.remaining_ms = 1;
  dial(name).send(FrameKind::hello, 0, as_payload(hello));
  const int console = STDERR_FILENO;
  dial(name).send(FrameKind::hello, 0, as_payload(hello), {&console, 1});
  Result<Fd> large = local::create_segment("zero.test", 8192);
  const int descriptor = large->get();
  dial(name).send(FrameKind::hello, 0, as_payload(hello), {&descriptor, 1});
}

/// This also holds if the claimed rank is already seated, which would otherwise have come twice.
TEST(Rendezvous, a_hello_without_a_sound_life_page_is_a_strangers) {
  const std::string name = unique_name();
  std::vector<std::thread> ranks;
  std::vector<std::string> results(3);
  for (size_t rank : {size_t{0}, size_t{1}, size_t{2}}) {
    ranks.emplace_back([&, rank] {
      results[rank] = outcome(create_local(name, static_cast<int32_t>(rank), 3, within(kLongMs)));
    });
    if (rank == 2) break;  // then the rendezvous ends
    if (rank == 1) usleep(50'000);
    say_hello_unsoundly(name);
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(results, Ranks({"ok", "ok", "ok"}));
}

TEST(Rendezvous, more_strangers_than_ranks_may_wait_without_a_word) {
  const Clock clock;  // so that none of them is silent for too long
  const std::string name = unique_name();
  std::vector<Link> silent;
  std::thread root([&] { EXPECT_EQ(outcome(create_local(name, 0, 2, within(kLongMs))), "ok"); });
  for (int i = 0; i < 100; ++i) silent.push_back(dial(name));
  EXPECT_EQ(outcome(create_local(name, 1, 2, within(kLongMs))), "ok");
  root.join();
}

TEST(Rendezvous, processes_of_other_users_are_turned_away) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to become another user";
  const std::string name = unique_name();
  const pid_t pid = fork();
  if (pid == 0) {  // an intruder with a correct hello
    if (setuid(65534) != 0) _exit(1);
    Link connection = dial_at(text("zero/0/", name));
    Result<local::Life> life = local::Life::begin();
    const int page = life->page();
    connection.send(FrameKind::hello, 0, as_payload(hello_of(1, 2)), {&page, 1});
    const std::string answer = hear_refusal(connection);
    _exit(contains(answer, "closed") ? 0 : 2);
  }
  std::thread root([&] { EXPECT_EQ(outcome(create_local(name, 0, 2, within(kLongMs))), "ok"); });
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(outcome(create_local(name, 1, 2, within(kLongMs))), "ok");
  root.join();
}

TEST(Rendezvous, a_name_that_another_user_holds_is_told_by_that_user_at_once) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to become another user";
  const std::string name = unique_name();
  SharedMemory ready(4096);
  const pid_t pid = fork();
  if (pid == 0) {
    if (setuid(65534) != 0) _exit(1);
    Fd listener;
    if (listen_at(place_of(text("zero/0/", name)), &listener) != 0) _exit(2);
    *ready.as<volatile int>() = 1;
    for (;;) pause();
  }
  while (*ready.as<volatile int>() == 0) usleep(500);
  const Clock clock(kLongMs / 2);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string said = outcome(create_local(name, rank, 2, within(kLongMs)));
    EXPECT_TRUE(contains(said, "ZERO_ERR_RENDEZVOUS", "user 65534: set ZERO_JOB on all ranks"));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// ---- Ranks with different arguments.

/// Joins each rank with these values of its rank and world.
Ranks join_as(const std::vector<std::pair<int, int>>& ideas, int64_t limit_ms = kLongMs) {
  const std::string name = unique_name();
  return run_sound_ranks(RankKind::processes, static_cast<int>(ideas.size()), [&](int i) {
    const auto [rank, world] = ideas[static_cast<size_t>(i)];
    return outcome(create_local(name, rank, world, within(limit_ms)));
  });
}

void expect_all_say(const Ranks& results, std::initializer_list<const char*> parts) {
  for (const std::string& said : results) {
    EXPECT_EQ(said, results[0]);
    EXPECT_TRUE(contains(said, "ZERO_ERR_RENDEZVOUS: "));
    for (const char* const part : parts) EXPECT_TRUE(contains(said, part));
  }
}

TEST(Rendezvous, ranks_that_disagree_about_the_world_are_named_at_once) {
  const Clock clock(kLongMs / 2);
  expect_all_say(join_as({{0, 3}, {1, 3}, {2, 4}}), {"rank 2 ", "4 ranks", "rank 0 ", " says 3"});
  expect_all_say(join_as({{0, 2}, {1, 3}, {2, 3}}), {"3 ranks", "rank 0 ", " says 2"});
}

TEST(Rendezvous, a_rank_that_comes_twice_is_named_at_once) {
  const Clock clock(kLongMs / 2);
  expect_all_say(join_as({{0, 3}, {1, 3}, {1, 3}}), {"rank 1 arrived twice", "process"});
  expect_all_say(join_as({{0, 2}, {0, 2}}), {"rank 0 arrived twice", "process"});
  expect_all_say(join_as({{0, 3}, {1, 3}, {0, 3}}), {"rank 0 arrived twice", "process"});
}

TEST(Rendezvous, another_version_is_named_at_once_also_to_those_who_come_later) {
  const std::string name = unique_name();
  std::string answer, later;
  const Clock clock(kLongMs / 2);
  std::thread others([&] {
    Prefix hello;
    hello.library = 30201;
    hello.protocol = 9;
    Link old = dial(name);
    send(old.fd(), &hello, sizeof hello, MSG_NOSIGNAL);
    answer = hear_refusal(old);
    later = outcome(create_local(name, 1, 2, within(kLongMs)));
  });
  const std::string said = outcome(create_local(name, 0, 2, within(kLongMs)));
  others.join();
  EXPECT_TRUE(contains(said, "ZERO_ERR_RENDEZVOUS", "libzero 3.2.1 (protocol 9)", "rank 0 "));
  EXPECT_EQ(later, said);
  EXPECT_EQ("ZERO_ERR_RENDEZVOUS: " + answer, said);
}

TEST(Rendezvous, a_rank_0_of_another_version_is_named) {
  const std::string name = unique_name();
  Fd listener;
  ASSERT_EQ(listen_at(place_of(local::address_of_comm(name)), &listener), 0);
  std::thread root([&] {
    Link connection = accept_one(listener);
    Prefix ack;
    ack.library = 30201;
    send(connection.fd(), &ack, sizeof ack, MSG_NOSIGNAL);
    (void)hear_refusal(connection);
  });
  const std::string said = outcome(create_local(name, 1, 2, within(kLongMs)));
  EXPECT_TRUE(contains(said, "ZERO_ERR_RENDEZVOUS", "libzero 3.2.1"));
  root.join();
}

/// Rank 0 knows the job's secret, but sends fewer processes than its memory names.
TEST(Rendezvous, a_process_that_rank_0_names_but_did_not_send_is_told) {
  const std::string name = unique_name();
  Fd listener;
  ASSERT_EQ(listen_at(place_of(local::address_of_comm(name)), &listener), 0);
  std::thread root([&] {
    Result<local::Life> life = local::Life::begin();
    Result<local::ControlSegment> segment = local::make_control_segment(2);
    std::byte* const shared = segment->mapping->data();
    local::Control::slot_of(shared, 1).process = 1;
    Link link = accept_one(listener);
    const Frame hello = std::move(hear(link, for_a_second())).value();
    Welcome welcome{hello_of(0, 2), {}};
    welcome.proof = prove({}, Role::root, 1,
                          {read<Introduction>(hello, FrameKind::hello)->nonce, welcome.root.nonce});
    link.send(FrameKind::welcome, 0, as_payload(welcome));
    const int page = life->page(), memory = segment->fd.get();
    link.send(FrameKind::seated, 0, {}, {&page, 1});
    const struct {
      local::Generation generation;
      uint32_t processes = 1, unused = 0;
    } group{local::Control::header_of(shared).generation};
    link.send(FrameKind::group, 0, as_payload(group), {&memory, 1});
    const int32_t process[] = {getpid(), 1};
    link.send(FrameKind::processes, 0, std::as_bytes(std::span(process)), {&page, 1});
    EXPECT_TRUE(contains(hear_refusal(link), "rank 0 named process 1 of 1"));
  });
  const std::string said = outcome(create_local(name, 1, 2, within(kLongMs)));
  EXPECT_TRUE(contains(said, "ZERO_ERR_RENDEZVOUS", "rank 0 named process 1 of 1"));
  root.join();
}

TEST(Rendezvous, what_another_process_says_is_told_as_utf8) {
  const std::string name = unique_name();
  Fd listener;
  ASSERT_EQ(listen_at(place_of(local::address_of_comm(name)), &listener), 0);
  std::thread root([&] {
    Link connection = accept_one(listener);
    connection.send(FrameKind::refusal, 0, bytes_of("no \xff\xc3 seat \xe2\x82\xac"));
    usleep(50'000);
  });
  const std::string said = outcome(create_local(name, 1, 2, within(kLongMs)));
  EXPECT_EQ(said, "ZERO_ERR_RENDEZVOUS: no ?? seat \xe2\x82\xac");
  EXPECT_TRUE(is_utf8(said));
  root.join();
}

/// Rank 0 has descriptors for their connections, but not for what comes with a hello.
TEST(Rendezvous, a_rank_0_without_descriptors_tells_its_ranks) {
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(
      RankKind::processes, 3,
      [&](int rank) {
        if (rank == 0)
          watch_points({"rendezvous.listening"}, [] {
            const int next = dup(STDERR_FILENO);
            close(next);
            const auto room = static_cast<rlim_t>(next) + 3;
            const rlimit limit{room, room};
            setrlimit(RLIMIT_NOFILE, &limit);
          });
        else
          usleep(50'000);
        return outcome(create_local(name, rank, 3, within(2'000)).failure());
      },
      kLongMs);
  EXPECT_TRUE(contains(results[0], "ZERO_ERR_SYSTEM"));
  // Ranks that reached rank 0 are told. The other one may find nobody.
  int told = 0;
  for (const std::string& said : results)
    told += contains(said, "rank 0 (process ") && contains(said, "raise ulimit -n");
  EXPECT_GE(told, 1) << results[1] << "\n" << results[2];
  EXPECT_TRUE(contains(results[0], "raise ulimit -n"));
}

TEST(Rendezvous, a_rank_out_of_range_is_named_at_once) {
  for (const int32_t rank : {-1, 2, 1 << 30}) {
    const std::string name = unique_name();
    std::string answer;
    std::thread odd([&] {
      Link connection = dial(name);
      Result<local::Life> life = local::Life::begin();
      introduce(connection, hello_of(rank, 2), life->page());
      answer = hear_refusal(connection);
    });
    const std::string said = outcome(create_local(name, 0, 2, within(kLongMs)));
    odd.join();
    EXPECT_TRUE(contains(said, text("rank ", rank, " "), "ranks 0 to 1"));
    EXPECT_TRUE(contains(answer, text("rank ", rank, " ")));
  }
}

TEST(Rendezvous, senseless_arguments_are_refused) {
  EXPECT_EQ(create_local("", 0, 1, {}).failure().code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(create_local("x", 0, 0, {}).failure().code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(create_local("x", 0, 1025, {}).failure().code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(create_local("x", 2, 2, {}).failure().code(), ZERO_ERR_ARGUMENT);
  EXPECT_EQ(create_local("x", -1, 2, {}).failure().code(), ZERO_ERR_ARGUMENT);
}

// ---- Ranks that are late.

TEST(Rendezvous, ranks_that_never_come_are_named_at_the_deadline) {
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    const Clock clock;
    const std::string name = unique_name();
    Ranks results = run_sound_ranks(kind, 3, [&](int i) {
      if (i == 2) return Clock::reach(300, 2), std::string();
      return outcome(create_local(name, 2 * i, 4, within(300)));
    });
    results.pop_back();
    expect_all_say(results, {"rank 1, rank 3 did not arrive within 300 ms"});
    EXPECT_FALSE(name_is_taken(name));
  }
}

TEST(Rendezvous, a_rank_0_that_never_comes_is_named_at_the_deadline) {
  const Clock clock;
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(
      RankKind::threads, 2,
      [&](int i) {
        if (i == 0) return Clock::reach(200, 1), std::string();
        return outcome(create_local(name, 1, 2, within(200)));
      },
      kLongMs);
  EXPECT_TRUE(contains(results[1], "ZERO_ERR_RENDEZVOUS", "rank 0 did not arrive within 200 ms"));
}

TEST(Rendezvous, the_log_says_once_after_10_seconds_who_has_not_come) {
  static std::string logged;
  static std::atomic<int> lines;
  set_log([](void*, int32_t, const char* message) { logged += text(message, "\n"), lines++; },
          nullptr, ZERO_LOG_WARNING);
  for (const int late : {0, 1}) {
    const Clock clock;
    const std::string name = unique_name();
    logged.clear();
    lines = 0;
    const Ranks results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
      if (rank == late) Clock::pass(10'100, 1);
      // If it came first, the line would have its process.
      while (rank == late && lines == 0) usleep(100);
      return outcome(create_local(name, rank, 2, within(kLongMs)));
    });
    EXPECT_EQ(results, Ranks({"ok", "ok"}));
    EXPECT_EQ(logged, text("rendezvous '", name, "': arrival: rank ", 1 - late,
                           " has been waiting for 10 s for rank ", late, "\n"));
  }
  set_log(nullptr, nullptr, 0);
}

TEST(Rendezvous, the_shortest_patience_of_any_rank_counts_for_all) {
  const Clock clock;
  const std::string name = unique_name();
  std::atomic<int> waiting{2};
  Ranks results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    if (rank == 2) return Clock::run([&] { return waiting.load(); }), std::string();
    std::string said = outcome(create_local(name, rank, 3, within(rank == 0 ? kLongMs : 250)));
    --waiting;
    return said;
  });
  results.pop_back();
  expect_all_say(results, {"rank 2 did not arrive within 250 ms"});
}

TEST(Rendezvous, rank_0_may_come_last) {
  const std::string name = unique_name();
  const Ranks results = run_sound_ranks(RankKind::processes, 3, [&](int rank) {
    if (rank == 0) usleep(200'000);
    return outcome(create_local(name, rank, 3, within(kLongMs)));
  });
  EXPECT_EQ(results, Ranks({"ok", "ok", "ok"}));
}

TEST(Rendezvous, the_name_is_free_again_for_the_next_group) {
  const std::string name = unique_name();
  for (const RankKind kind : {RankKind::threads, RankKind::processes}) {
    const Ranks results = run_sound_ranks(kind, 3, [&](int rank) {
      std::string said;
      for (int i = 0; i < 20; ++i) said += outcome(create_local(name, rank, 3, within(kLongMs)));
      return said;
    });
    for (const std::string& said : results) EXPECT_EQ(said, results[0]);
    EXPECT_EQ(results[0].size(), 40u) << results[0];
  }
}

TEST(Rendezvous, names_of_any_length_tell_groups_apart) {
  const std::string long_name(500, 'x');
  const Ranks results = run_sound_ranks(RankKind::threads, 4, [&](int i) {
    return outcome(create_local(long_name + (i < 2 ? "a" : "b"), i % 2, 2, within(kLongMs)));
  });
  EXPECT_EQ(results, Ranks(4, "ok"));
}

TEST(Rendezvous, sixty_four_threads_are_one_group) {
  const std::string name = unique_name();
  EXPECT_EQ(run_sound_ranks(
                RankKind::threads, 64,
                [&](int rank) { return outcome(create_local(name, rank, 64, within(kLongMs))); }),
            Ranks(64, "ok"));
}

TEST(Rendezvous, threads_of_one_process_introduce_it_once) {
  const std::string name = unique_name();
  const int64_t before = entries_of("/proc/self/fd");
  static std::atomic<int64_t> gathered;
  const ReplacedCall look(&SystemCalls::reached, [](const char* point) {
    if (std::string_view(point) == "rendezvous.gathered") gathered = entries_of("/proc/self/fd");
  });
  const Ranks results = run_sound_ranks(RankKind::threads, 64, [&](int rank) {
    return outcome(create_local(name, rank, 64, within(kLongMs)));
  });
  EXPECT_EQ(results, Ranks(64, "ok"));
  EXPECT_GT(gathered, before + 2 * 63);  // the ends of connections
  EXPECT_LT(gathered, before + 3 * 63);
}

TEST(Rendezvous, nothing_is_left_behind) {
  const auto left = [] {
    return text(entries_of("/proc/self/fd"), " descriptors, ", entries_of("/proc/self/task"),
                " threads, ", local::mapped_segments(), " mappings");
  };
  const std::string before = left();
  const std::string name = unique_name();
  const auto join = [&](int rank, int world, int64_t limit_ms) {
    return outcome(create_local(name, rank, world, within(limit_ms)));
  };
  run_sound_ranks(RankKind::threads, 3, [&](int rank) { return join(rank, 3, kLongMs); });
  EXPECT_EQ(left(), before) << "after success";
  run_sound_ranks(RankKind::threads, 2, [&](int rank) { return join(rank, 3, 50); });
  EXPECT_EQ(left(), before) << "after a deadline";
  run_sound_ranks(RankKind::threads, 3,
                  [&](int rank) { return join(rank, rank == 2 ? 4 : 3, kLongMs); });
  EXPECT_EQ(left(), before) << "after a refusal";
  EXPECT_FALSE(name_is_taken(name));
}

// ---- Ranks that die or stop during a rendezvous.

/// Returns the points of each rank in a rendezvous of `world` ranks.
PointsOfRanks points_of(int world) {
  const std::string name = unique_name();
  const PointsOfRanks points = points_of_ranks(world, [&](int rank) {
    watch_points();
    return outcome(create_local(name, rank, world, within(kLongMs)));
  });
  for (const auto& of_rank : points) EXPECT_GT(of_rank.size(), 8u);
  return points;
}

/// Before this point the others do not all know the victim, which then counts as missing.
bool is_known(const Victim& victim) {
  const std::initializer_list<const char*> early[] = {
      {"rendezvous.begun", "rendezvous.bound", "rendezvous.listening", "rendezvous.heard"},
      {"rendezvous.begun", "rendezvous.connected"}};
  for (const char* const name : early[victim.rank != 0])
    if (victim.point.name == name) return false;
  return true;
}

/// Runs ranks of which one does `action` at a point, and checks each result. All have a seat, or
/// none has.
template <class Check>
void strike(int world, const Victim& victim, void (*action)(), int64_t limit_ms,
            const Check& check) {
  const std::string name = unique_name();
  const std::vector<RankEnd> ends = run_struck_ranks(world, [&](int rank) {
    if (rank == victim.rank) watch_points(victim.point, action);
    return outcome(create_local(name, rank, world, within(limit_ms)).failure());
  });
  EXPECT_FALSE(name_is_taken(name));
  const bool dies = action == die;
  const bool formed = ends[dies && victim.rank == 0 ? 1 : 0].result == "ok";
  for_each_survivor(ends, dies ? victim.rank : -1, [&](int rank, const std::string& said) {
    EXPECT_EQ(said == "ok", formed) << said;
    if (said != "ok") {
      EXPECT_TRUE(contains(said, "ZERO_ERR_RENDEZVOUS: "));
      check(rank, said);
    }
  });
}

TEST(Rendezvous, a_rank_that_dies_at_any_point_ends_it_for_all_and_at_once) {
  for (int world = 2; world <= 4; ++world) {
    for_each_victim(points_of(world), 1, [&](const Victim& victim) {
      const bool known = is_known(victim);
      strike(world, victim, die, known ? kLongMs : 400, [&](int rank, const std::string& said) {
        EXPECT_TRUE(contains(said, text("rank ", victim.rank)));
        if (known) {
          EXPECT_LE(Clock::slept_ms(rank), 100) << said;
        }
      });
    });
  }
}

/// A child of the dead rank stays alive with all its descriptors. No socket is closed before the
/// other rank has been told.
TEST(Rendezvous, a_living_child_does_not_hide_a_death) {
  for (int victim = 0; victim < 2; ++victim) {
    const std::string name = unique_name();
    const std::vector<RankEnd> ends = run_struck_ranks(2, [&](int rank) {
      const auto leave = [] {
        leave_child_behind();
        die();
      };
      if (rank == victim)
        watch_points({victim == 0 ? "rendezvous.gathered" : "rendezvous.accepted", 1}, leave);
      // Rank 2 is missing, so that rank 0 keeps waiting.
      return outcome(create_local(name, rank, victim == 0 ? 2 : 3, within(kLongMs)));
    });
    for_each_survivor(ends, victim, [&](int, const std::string& said) {
      EXPECT_TRUE(contains(said, text("rank ", victim, " (process "), " died"));
    });
  }
}

/// The next try finds the name unused.
TEST(Rendezvous, a_worker_keeps_no_name_of_a_rendezvous_that_failed) {
  static std::optional<Worker> worker;
  const std::string name = unique_name();
  {
    const ReplacedCall forks(&SystemCalls::reached, [](const char* point) {
      if (point == std::string_view("rendezvous.listening")) worker.emplace();
    });
    const std::string said = outcome(create_local(name, 0, 2, within(100)));
    EXPECT_TRUE(contains(said, "rank 1 did not arrive within 100 ms"));
  }
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    EXPECT_EQ(outcome(create_local(name, rank, 2, within(kLongMs))), "ok");
    return std::string();
  });
  worker.reset();
}

/// Stopped ranks are named by the deadline, and get an error when they resume.
TEST(Rendezvous, a_rank_that_stops_at_any_point_leaves_no_half_group) {
  for (int world = 2; world <= (nightly_run() ? 4 : 2); ++world) {
    for_each_victim(points_of(world), 1, [&](const Victim& victim) {
      strike(world, victim, stop, 300, [](int, const std::string&) {});
    });
  }
}

}  // namespace
}  // namespace zero::test
