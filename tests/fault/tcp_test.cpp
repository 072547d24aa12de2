// SPDX-License-Identifier: Apache-2.0
// Ranks that meet at rank 0's socket: strangers, ranks that die, leave, are late or abort, and the
// errors that all others get.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "base/text.h"
#include "comm/failure.h"
#include "fault/tcp_ranks.h"
#include "support/clock.h"
#include "support/interrupted.h"

namespace zero::tcp {
namespace {

using test::Clock;
using test::contains;
using test::Interrupted;
using test::RankEnd;
using test::run_ranks;
using test::SharedMemory;

// ---- Meeting.

/// Meets the other ranks, and exchanges with them.
std::string met(const Root& root, int32_t rank, int32_t world) {
  if (const Seat seat = sit(root, rank, world)) {
    EXPECT_EQ(outcome(exchange(*seat, world)), "ok");
  }
  return {};
}

TEST(Tcp, every_rank_that_did_not_connect_is_named) {
  const Clock clock;
  const KeptRoot root = make_root();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    if (rank == 0) return outcome(std::move(meet(root, 0, 4, 300)).status());
    const Result<Seat> seat = meet(root, 2, 4, 300);
    EXPECT_TRUE(seat.ok()) << seat.failure().text();  // the first exchange would report it
    Clock::reach(300, 1);
    return std::string();
  });
  EXPECT_EQ(results[0],
            "ZERO_ERR_RENDEZVOUS: rank 1, rank 3 did not connect to rank 0 within 300 ms");
}

TEST(Tcp, a_rank_without_the_key_is_not_let_in) {
  const Clock clock;
  const Root root = make_root();
  Root wrong;
  wrong.offer = root.offer;
  wrong.offer.key[15] ^= std::byte{1};
  const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    if (rank == 2) return Clock::reach(400, 2), std::string();
    return outcome(std::move(meet(rank == 0 ? root : wrong, rank, 2, 400)).status());
  });
  EXPECT_EQ(results[0], "ZERO_ERR_RENDEZVOUS: rank 1 did not connect to rank 0 within 400 ms");
  EXPECT_TRUE(
      contains(results[1], "ZERO_ERR_RENDEZVOUS: rank 0 could not be reached within 400 ms"));
}

TEST(Tcp, a_rank_does_not_take_for_rank_0_what_has_not_its_key) {
  const Clock clock;
  Root root = make_root();
  const Offer offer = root.offer;
  root.offer.key[0] ^= std::byte{1};
  const auto results = run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    if (rank == 2) return Clock::reach(400, 2), Clock::reach(590, 1), std::string();
    // Rank 0 listens longer than the other rank tries.
    if (rank == 0) return outcome(std::move(meet(root, 0, 2, 1'000)).status());
    return outcome(std::move(visit(offer, 1, 2, {400, [] { return Status(); }})).status());
  });
  EXPECT_TRUE(contains(results[1], "the process there is not rank 0"));
}

TEST(Tcp, strangers_do_not_disturb_a_meeting) {
  const KeptRoot root = make_root();
  run_sound_ranks(RankKind::threads, 4, [&](int rank) {
    if (rank == 3) {  // one that sends invalid frames, and one that sends nothing
      for (const std::string& words : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string()}) {
        Fd fd;
        EXPECT_EQ(start_connect(place_of(root.offer.addresses[0], root.offer.port), &fd), 0);
        usleep(20'000);
        (void)send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
        usleep(20'000);
      }
      return std::string();
    }
    return met(root, rank, 3);
  });
}

/// Connects a stranger to rank 0.
Fd dial(const Root& root) {
  Fd fd;
  const Address here = *to_address(std::string("127.0.0.1"));
  EXPECT_EQ(start_connect(place_of(here, root.offer.port), &fd), 0);
  pollfd one{fd.get(), POLLOUT, 0};
  EXPECT_EQ(poll(&one, 1, 5'000), 1);
  return fd;
}

bool ends_soon(Link& link) {
  for (int i = 0; i < 3'000 && !link.over(); ++i) {
    while (link.take()) {
    }
    usleep(10'000);
  }
  return link.over();
}

/// Returns the next frame on `link`, which must arrive soon.
std::optional<Frame> await_frame(Link& link) {
  for (int i = 0; i < 3'000 && !link.over(); ++i) {
    if (std::optional<Frame> frame = link.take()) return frame;
    usleep(10'000);
  }
  return std::nullopt;
}

/// Returns what a rank first sends to `false_root`, which listens in place of rank 0.
std::vector<std::byte> overhear(const Root& false_root) {
  std::vector<std::byte> heard;
  std::thread victim([&] { (void)meet(false_root, 1, 2); });
  for (int i = 0; i < 3'000 && heard.empty(); ++i) {
    Fd guest = accept_connection(false_root.listener.fd.get());
    if (guest.valid()) {
      Link link(std::move(guest), 65536);
      if (const std::optional<Frame> frame = await_frame(link)) heard = frame->payload;
    }
    usleep(10'000);
  }
  Clock::jump(20'000);
  victim.join();
  EXPECT_FALSE(heard.empty());
  return heard;
}

/// Only rank 0 can use it.
TEST(Tcp, what_was_heard_from_a_rank_takes_no_seat) {
  const Clock clock;
  const Root false_root = make_root();
  const std::vector<std::byte> heard = overhear(false_root);
  Root root = make_root();  // of the same group: the same key
  root.offer.key = false_root.offer.key;
  std::thread stranger([&] {
    Link link(dial(root), 65536);
    link.send(FrameKind::hello, 0, heard);
    const std::optional<Frame> welcome = await_frame(link);
    EXPECT_TRUE(welcome && welcome->kind == FrameKind::welcome);
    if (welcome) link.send(FrameKind::confirm, 0, std::span(welcome->payload).last(32));
    EXPECT_TRUE(ends_soon(link));
    Clock::jump(2'000);
  });
  EXPECT_EQ(outcome(std::move(meet(root, 0, 2, 2'000)).status()),
            "ZERO_ERR_RENDEZVOUS: rank 1 did not connect to rank 0 within 2000 ms");
  stranger.join();
}

TEST(Tcp, a_stranger_is_not_waited_for_beyond_4_KiB) {
  const Clock clock;
  const KeptRoot root = make_root();
  Fd fd = dial(root);
  const int small = 4096;
  ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  Link link(std::move(fd), 65536);
  link.send(FrameKind::hello, 0, std::vector<std::byte>(250'000));
  ASSERT_TRUE(link.unsent());  // nobody reads yet, and the rest would never arrive
  std::thread rank_0([&] { EXPECT_EQ(met(root, 0, 2), ""); });
  EXPECT_TRUE(ends_soon(link));
  EXPECT_EQ(met(root, 1, 2), "");
  rank_0.join();
}

TEST(Tcp, connections_that_say_nothing_crowd_out_no_rank) {
  constexpr int kSilent = 1'100;
  rlimit room{};
  getrlimit(RLIMIT_NOFILE, &room);
  if (room.rlim_max < 2 * kSilent) GTEST_SKIP() << "needs that many descriptors";
  const KeptRoot root = make_root();
  SharedMemory memory(4096);
  auto* const ready = memory.as<std::atomic<bool>>();
  const pid_t crowd = fork();
  if (crowd == 0) {
    room.rlim_cur = 2 * kSilent;
    setrlimit(RLIMIT_NOFILE, &room);
    std::vector<Fd> silent;
    for (int i = 0; i < kSilent; ++i) {
      silent.push_back(dial(root));
      if (i == kSilent / 2) *ready = true;  // the rest connect while the ranks do
    }
    for (;;) pause();
  }
  run_sound_ranks(RankKind::processes, 3, [&](int rank) {
    if (rank == 0) {
      const rlimit usual{1'024, 1'024};
      setrlimit(RLIMIT_NOFILE, &usual);
    }
    while (rank != 0 && !*ready) usleep(1'000);
    if (rank != 0) usleep(300'000);
    Result<Seat> seat = meet(root, rank, 3);
    EXPECT_TRUE(seat.ok()) << seat.failure().text();
    if (seat.ok()) {
      EXPECT_EQ(outcome(exchange(**seat, 3)), "ok");
    }
    return std::string();
  });
  kill(crowd, SIGKILL);
  waitpid(crowd, nullptr, 0);
}

/// Rank 0 keeps 256 in addition to one for every rank, whatever its limit of descriptors is.
TEST(Tcp, of_more_strangers_than_are_kept_those_go_first_that_said_nothing) {
  const Clock clock;
  constexpr size_t kKept = 257, kMore = 10;
  const KeptRoot root = make_root();
  const std::vector<std::byte> hello = overhear(make_root());
  std::thread rank_0([&] { (void)meet(root, 0, 2); });
  Link spoken(dial(root), 65536);
  spoken.send(FrameKind::hello, 0, hello);
  EXPECT_TRUE(await_frame(spoken));
  std::vector<std::unique_ptr<Link>> silent;
  const auto ended = [&] {
    return std::count_if(silent.begin(), silent.end(), [](auto& one) {
      (void)one->take();
      return one->over();
    });
  };
  while (silent.size() < kKept - 1) silent.push_back(std::make_unique<Link>(dial(root), 65536));
  usleep(100'000);
  EXPECT_EQ(ended(), 0);
  for (size_t i = 0; i < kMore; i++) silent.push_back(std::make_unique<Link>(dial(root), 65536));
  for (size_t i = 0; i < kMore; i++) EXPECT_TRUE(ends_soon(*silent[i]));
  EXPECT_EQ(ended(), kMore);
  EXPECT_FALSE(spoken.over());
  Clock::jump(20'000);
  rank_0.join();
}

/// A rank that tries again leaves such a connection. Rank 0 finds both when it comes.
TEST(Tcp, a_connection_that_was_given_up_takes_no_seat) {
  const KeptRoot root = make_root();
  EXPECT_FALSE(meet(root, 1, 2, 300).ok());  // nobody accepts yet
  run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    if (rank == 1) usleep(200'000);
    return met(root, rank, 2);
  });
}

/// A rank gives up no connection that may still be answered.
TEST(Tcp, a_rank_0_that_comes_late_to_its_connections_loses_nobody) {
  const Clock clock;
  const KeptRoot root = make_root();
  run_sound_ranks(RankKind::threads, 3, [&](int rank) {
    if (rank == 0) Clock::pass(3'005, 2);
    return met(root, rank, 3);
  });
}

TEST(Tcp, a_rank_that_dies_while_others_are_awaited_is_named_at_once) {
  const Clock clock;
  const KeptRoot root = make_root();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 2, [&](int rank) {
    const Result<Seat> seat = meet(root, rank, 3);  // rank 2 is missing
    if (rank == 1) kill(getpid(), SIGKILL);
    return outcome(seat.failure());
  });
  EXPECT_TRUE(contains(ends[0].result, "ZERO_ERR_RENDEZVOUS: rank 1 (process ",
                       ") died: its connection was closed"));
}

TEST(Tcp, a_rank_of_another_world_is_refused) {
  const KeptRoot root = make_root();
  const auto results = run_sound_ranks(RankKind::threads, 2, [&](int rank) {
    return outcome(std::move(meet(root, rank == 0 ? 0 : 5, rank == 0 ? 2 : 6, 500)).status());
  });
  EXPECT_TRUE(contains(results[0], "rank 5 (process ", ") says there are 6 ranks, rank 0 (process ",
                       ") says 2"));
  EXPECT_EQ(results[1], results[0]);
}

// ---- Ranks that die or leave.

TEST(Tcp, every_rank_gets_what_all_combine_to) {
  run_seats(4, [](Seat seat, int rank) {
    for (uint64_t count = 1; count <= 1000; count += 333) {
      std::vector<Sum> sums(count, Sum{uint64_t{1} << rank});
      const Status status = seat->combine_bytes(std::as_writable_bytes(std::span(sums)),
                                                combining<Sum>.combine, within(20'000));
      EXPECT_EQ(outcome(status), "ok");
      for (const Sum& sum : sums) EXPECT_EQ(sum.value, 15u);
    }
    return std::string();
  });
}

TEST(Tcp, records_of_several_sizes_combine_to_nothing) {
  for (const std::string& said : run_seats(3, [](Seat seat, int rank) {
         std::vector<Sum> sums(rank == 1 ? 3 : 2);
         return outcome(seat->combine_bytes(std::as_writable_bytes(std::span(sums)),
                                            combining<Sum>.combine, within(20'000)));
       }))
    EXPECT_EQ(said, "ZERO_ERR_COMM: zero_step: vote: the ranks sent records that do not match");
}

TEST(Tcp, a_rank_that_is_killed_is_named_by_all_others) {
  for (int victim = 0; victim < 3; ++victim) {
    const KeptRoot root = make_root();
    SharedMemory memory(4096);
    auto* const pids = memory.as<std::atomic<pid_t>>();
    const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
      pids[rank] = getpid();
      const Seat seat = sit(root, rank, 3);
      if (seat == nullptr) return std::string();
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
      if (rank == victim) kill(getpid(), SIGKILL);
      return go_on(*seat, 3);
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const std::string& said = ends[static_cast<size_t>(rank)].result;
      EXPECT_TRUE(contains(said,
                           text("ZERO_ERR_PEER_DEAD: zero_step: vote: rank ", victim, " (process ",
                                pids[victim].load(), " on "),
                           ") died: its connection was closed"));
    }
  }
}

TEST(Tcp, a_death_is_found_by_a_look_between_calls) {
  const KeptRoot root = make_root();
  const std::vector<RankEnd> ends = run_ranks(RankKind::processes, 3, [&](int rank) {
    const Seat seat = sit(root, rank, 3);
    if (seat == nullptr || !exchange(*seat, 3).ok()) return std::string("no exchange");
    if (rank == 2) kill(getpid(), SIGKILL);
    for (int i = 0; i < 10'000; ++i) {
      if (const Status status = seat->check(); !status.ok()) return outcome(status);
      usleep(1000);
    }
    return std::string("nothing found");
  });
  for (const size_t rank : {size_t{0}, size_t{1}})
    EXPECT_TRUE(contains(ends[rank].result, "ZERO_ERR_PEER_DEAD: zero_step: vote: rank 2 ("));
}

TEST(Tcp, a_rank_that_has_freed_its_comm_is_not_called_dead) {
  for (int victim = 0; victim < 3; ++victim) {
    const auto results = run_seats(
        3, [&](Seat seat, int rank) { return rank == victim ? std::string() : go_on(*seat, 3); });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(results[static_cast<size_t>(rank)],
                text("ZERO_ERR_DESYNC: zero_step: vote: rank ", victim, " has freed its comm"));
    }
  }
}

// ---- Ranks that are late.

TEST(Tcp, a_rank_that_does_not_come_is_named_by_all_others) {
  for (int absent = 0; absent < 3; ++absent) {
    for (int first = 0; first < 3; ++first) {  // the rank whose deadline comes first
      if (first == absent) continue;
      const Clock clock;
      std::atomic<int> waiting{1};
      const auto results = run_seats(3, [&](Seat seat, int rank) {
        if (rank == absent) {
          Clock::pass(60, 1);
          waiting = 2;
          Clock::run([&] { return waiting.load(); });
          return std::string();
        }
        while (rank != first && waiting < 2) usleep(1000);
        const std::string said = outcome(exchange(*seat, 3, within(300)));
        --waiting;
        while (waiting > 0) usleep(1000);
        return said;
      });
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == absent) continue;
        EXPECT_TRUE(contains(results[static_cast<size_t>(rank)],
                             text("ZERO_ERR_TIMEOUT: zero_step: vote: rank ", absent, " (process "),
                             ") did not arrive within 300 ms"));
      }
    }
  }
}

TEST(Tcp, a_late_rank_finds_the_cause_of_those_who_gave_up) {
  const Clock clock;
  std::atomic<int> waiting{2};
  for (const std::string& said : run_seats(3, [&](Seat seat, int rank) {
         if (rank == 1) Clock::run([&] { return waiting.load(); });
         const std::string result = outcome(exchange(*seat, 3, within(200)));
         --waiting;
         return result;
       }))
    EXPECT_TRUE(contains(said, "ZERO_ERR_TIMEOUT: zero_step: vote: rank 1 (process "));
}

TEST(Tcp, progress_extends_the_deadline_of_a_call_that_all_have_entered) {
  for (int slow = 0; slow < 3; ++slow) {
    const Clock clock;
    for (const std::string& said : run_seats(3, [&](Seat seat, int rank) {
           for (int i = 0; rank == slow && i < 9; ++i) {
             Clock::pass(100, 2);
             seat->note_progress();
           }
           return outcome(exchange(*seat, 3, within(400, true)));
         }))
      EXPECT_EQ(said, "ok") << "slow is rank " << slow;
  }
}

TEST(Tcp, without_progress_the_quietest_is_named) {
  const Clock clock;
  std::atomic<int> waiting{2};
  const auto results = run_seats(3, [&](Seat seat, int rank) {
    if (rank == 2) return Clock::run([&] { return waiting.load(); }), std::string();
    const std::string said = outcome(exchange(*seat, 3, within(200, true)));
    --waiting;
    return said;
  });
  for (const size_t rank : {size_t{0}, size_t{1}})
    EXPECT_TRUE(contains(results[rank], "vote: rank 2 (process ", "made no progress for 200 ms"));
}

// ---- Aborts.

TEST(Tcp, an_interrupt_of_any_rank_is_told_to_all) {
  for (int interrupted = 0; interrupted < 3; ++interrupted) {
    const KeptRoot root = make_root();
    const auto results = run_sound_ranks(RankKind::processes, 3, [&](int rank) {
      const Seat seat = sit(root, rank, 3);
      EXPECT_EQ(outcome(exchange(*seat, 3)), "ok");
      std::optional<Interrupted> call;
      if (rank == interrupted)
        call.emplace();
      else
        usleep(200'000);
      return outcome(exchange(*seat, 3));
    });
    for (const std::string& said : results)
      EXPECT_EQ(said, text("ZERO_ERR_ABORTED: zero_step: vote: ", interruption_of(interrupted)));
  }
}

TEST(Tcp, an_abort_of_any_rank_ends_the_wait_of_all_with_its_cause) {
  for (int aborter = 0; aborter < 3; ++aborter) {
    const Clock clock;
    for (const std::string& said : run_seats(3, [&](Seat seat, int rank) {
           if (rank == aborter) {
             Clock::pass(50, 2);
             Failure cause;
             cause.code = ZERO_ERR_ABORTED;
             cause.rank = rank;
             cause.step = 12;
             cause.params_consistent = false;
             cause.phase = "zero_comm_abort";
             cause.text = "enough";
             seat->abort(cause);
             cause.text = "the second";
             seat->abort(cause);
           }
           const std::string result = outcome(exchange(*seat, 3));
           const Failure failure = seat->failure();
           EXPECT_EQ(failure.rank, aborter);
           EXPECT_EQ(failure.step, 12);
           EXPECT_FALSE(failure.params_consistent);
           EXPECT_EQ(failure.phase, "zero_comm_abort");
           usleep(50'000);
           return result;
         }))
      EXPECT_EQ(said, "ZERO_ERR_ABORTED: enough");
  }
}

TEST(Tcp, what_another_rank_says_is_told_as_utf8) {
  Failure cause;
  cause.code = ZERO_ERR_TIMEOUT;
  cause.phase = "at \xc3";
  cause.text = "no \xff";
  const Cause packed = pack(cause);
  EXPECT_EQ(unpack(as_payload(packed)).phase, "at ?");
  EXPECT_EQ(unpack(as_payload(packed)).text, "no ?");
}

TEST(Tcp, a_cause_that_is_cut_anywhere_is_still_a_cause) {
  Failure cause;
  cause.code = ZERO_ERR_TIMEOUT;
  cause.rank = 3;
  cause.phase = "here";
  cause.text = "a sentence";
  const Cause packed = pack(cause);
  const std::span<const std::byte> bytes = as_payload(packed);
  EXPECT_EQ(unpack(bytes).text, "a sentence");
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const Failure read = unpack(bytes.first(cut));
    EXPECT_LT(read.code, 0) << cut;
    EXPECT_FALSE(read.text.empty() && read.phase.empty() && read.code == ZERO_OK) << cut;
  }
}

}  // namespace
}  // namespace zero::tcp
