// SPDX-License-Identifier: Apache-2.0
// What every comm promises if calls do not match, or end in the middle.
#include <thread>

#include "comm_cases.h"

namespace zero::test {
namespace {

// ---- What breaks.

TEST_P(Conformance, a_second_call_on_a_busy_comm_is_refused_without_effect) {
  run([&](const Seat& seat) {
    Call call = begin(seat);
    std::thread second([&] {
      const Result<Call> refused = seat->begin(Operation::step, 1);
      EXPECT_FALSE(refused.ok());
      EXPECT_EQ(refused.failure().code(), ZERO_ERR_BUSY);
      EXPECT_NE(refused.failure().text().find("another thread is inside"), std::string::npos);
    });
    second.join();
    EXPECT_OK(call.vote("vote", {}));
    EXPECT_FALSE(seat->begin(Operation::step, 1).ok());
    Call moved = std::move(call);
    EXPECT_FALSE(seat->begin(Operation::step, 1).ok());
    EXPECT_OK(moved.vote("vote", {}));
  });
}

/// What rank `odd` does differently, and how the error describes its side and rank 0's.
struct Difference {
  int32_t odd;
  std::function<Status(const Seat& seat, bool odd)> go;
  std::string of_odd, usual;
};

/// Checks that every rank's error has both sides of each difference. Each difference has its own
/// comm.
void expect_told(const Case& of, const std::vector<Difference>& differences) {
  const Meeting meeting(of.backend, of.world);
  const auto results = run_sound_ranks(of.ranks, of.world, [&](int rank) {
    std::string outcomes;
    for (size_t i = 0; i < differences.size(); ++i) {
      const Seat seat = join(meeting, rank, static_cast<int>(i));
      if (!seat) return outcomes;
      const Status status = differences[i].go(seat, rank == differences[i].odd);
      outcomes += outcome_of(status) + "\n";
      EXPECT_TRUE(seat->aborted());
      EXPECT_EQ(seat->failure().code, ZERO_ERR_DESYNC);
      EXPECT_EQ(seat->begin(Operation::barrier).failure().code(), ZERO_ERR_DESYNC);
    }
    return outcomes;
  });
  std::string expected;
  for (const Difference& one : differences)
    expected += outcome(ZERO_ERR_DESYNC,
                        text("rank ", one.odd, " ", one.of_odd, ", rank 0 ", one.usual, "\n"));
  for (const std::string& result : results) EXPECT_EQ(result, expected);
}

TEST_P(Conformance, ranks_in_different_calls_are_told_both_sides) {
  if (world() == 1) return;
  std::vector<Difference> differences;
  const auto last = static_cast<uint32_t>(Operation::load);
  for (uint32_t a = 1; a <= last; ++a) {
    for (uint32_t b = 1; b <= last; ++b) {
      if (a == b || (world() > 2 && b != a % last + 1)) continue;
      const auto one = static_cast<Operation>(a), other = static_cast<Operation>(b);
      differences.push_back(
          {static_cast<int32_t>(differences.size()) % (world() - 1) + 1,
           [=](const Seat& seat, bool odd) { return barrier(seat, odd ? one : other); },
           text("called ", operation_name(one)), text("called ", operation_name(other))});
    }
  }
  expect_told(GetParam(), differences);
}

TEST_P(Conformance, ranks_in_different_places_are_told_both_sides) {
  if (world() == 1) return;
  std::byte data[64] = {};
  const int32_t last = world() - 1;
  const std::vector<Difference> differences = {
      {last, [](const Seat& seat, bool odd) { return barrier(seat, Operation::step, odd ? 2 : 1); },
       "called zero_step on its optimizer 2", "called zero_step on its optimizer 1"},
      {last,
       [](const Seat& seat, bool odd) {
         return begin(seat, Operation::seal).vote(odd ? "plan" : "settings", {});
       },
       "votes in zero_seal at 'plan' (exchange 0)",
       "votes in zero_seal at 'settings' (exchange 0)"},
      {last,
       [](const Seat& seat, bool odd) {
         Call call = begin(seat, Operation::save);
         if (odd) return call.vote("here", {});
         return std::move(call.gather("here", "")).status();
       },
       "votes in zero_state_save at 'here' (exchange 0)",
       "gathers in zero_state_save at 'here' (exchange 0)"},
      {last,
       [&](const Seat& seat, bool odd) {
         return begin(seat, Operation::broadcast)
             .broadcast("data", std::span(data).first(odd ? 60 : 64), 0);
       },
       "sends 60 bytes in zero_comm_broadcast at 'data'",
       "sends 64 bytes in zero_comm_broadcast at 'data'"},
      {last,
       [&](const Seat& seat, bool odd) {
         return begin(seat, Operation::broadcast).broadcast("data", data, odd ? 1 : 0);
       },
       "expects the data of rank 1 in zero_comm_broadcast at 'data'",
       "expects the data of rank 0 in zero_comm_broadcast at 'data'"},
      {last,
       [&](const Seat& seat, bool odd) {
         std::vector<std::byte> mine(odd ? 100'000 : 8);
         std::vector<std::byte> all(mine.size() * static_cast<size_t>(seat->world()));
         return begin(seat, Operation::load).exchange("sizes", mine, all);
       },
       "sends 100000 bytes in zero_state_load at 'sizes'",
       "sends 8 bytes in zero_state_load at 'sizes'"},
      {last,
       [](const Seat& seat, bool odd) {
         if (odd) {
           EXPECT_OK(barrier(seat));
         }
         Call call = begin(seat);
         if (odd) return call.vote("barrier", {});
         EXPECT_OK(call.vote("barrier", {}));
         return call.vote("more", {});
       },
       "is in its collective call 2 (zero_comm_barrier)",
       "is in its collective call 1 (zero_comm_barrier)"},
  };
  expect_told(GetParam(), differences);
}

TEST_P(Conformance, the_first_abort_stands_and_every_later_call_returns_it) {
  run([&](const Seat& seat) {
    EXPECT_FALSE(seat->aborted());
    EXPECT_OK(seat->failure().code);
    EXPECT_OK(barrier(seat));
    Failure cause;
    cause.code = ZERO_ERR_ABORTED;
    cause.rank = 0;
    cause.step = 12;
    cause.params_consistent = false;
    cause.phase = "zero_comm_abort";
    cause.text = "the user said so";
    // A solo comm sees only its own abort, so every rank makes the same one.
    std::thread other([&] { seat->abort(cause); });
    other.join();
    cause.text = "the second cause";
    seat->abort(cause);
    EXPECT_TRUE(seat->aborted());
    const Failure failure = seat->failure();
    EXPECT_EQ(failure.code, ZERO_ERR_ABORTED);
    EXPECT_EQ(failure.rank, 0);
    EXPECT_EQ(failure.step, 12);
    EXPECT_FALSE(failure.params_consistent);
    EXPECT_EQ(failure.phase, "zero_comm_abort");
    EXPECT_EQ(failure.text, "the user said so");
    const Result<Call> call = seat->begin(Operation::barrier);
    EXPECT_EQ(call.failure().code(), ZERO_ERR_ABORTED);
    EXPECT_EQ(call.failure().text(), "the user said so");
  });
}

TEST_P(Conformance, an_abort_inside_a_call_ends_it) {
  run([&](const Seat& seat) {
    EXPECT_OK(barrier(seat));
    seat->steps.done = 5;
    seat->steps.publishing = 1;
    Call call = begin(seat, Operation::step, 1);
    EXPECT_OK(call.vote("before", {}));  // all ranks are in the call
    const CommKind backend = GetParam().backend;
    const bool alone =
        backend == CommKind::solo || backend == CommKind::user || backend == CommKind::user_sums;
    if (alone || seat->rank() == seat->world() - 1) {
      const Status cause = call.abort(Status(ZERO_ERR_SYSTEM, "it cannot go on"), "publish");
      EXPECT_EQ(outcome_of(cause), outcome(ZERO_ERR_SYSTEM, "it cannot go on"));
    }
    const Status status = call.vote("after", {});
    EXPECT_EQ(outcome_of(status), outcome(ZERO_ERR_SYSTEM, "it cannot go on"));
    const Failure failure = seat->failure();
    EXPECT_EQ(failure.rank, alone ? seat->rank() : seat->world() - 1);
    EXPECT_EQ(failure.step, 5);
    EXPECT_FALSE(failure.params_consistent);
    EXPECT_EQ(failure.phase, "zero_step: publish");
  });
}

TEST_P(Conformance, an_exception_inside_a_call_breaks_the_comm) {
  run([&](const Seat& seat) {
    try {
      Call call = begin(seat, Operation::save, 1);
      EXPECT_OK(call.vote("vote", {}));
      throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
    EXPECT_TRUE(seat->aborted());
    EXPECT_EQ(seat->begin(Operation::save, 1).failure().code(), ZERO_ERR_MEMORY);
  });
}

}  // namespace
}  // namespace zero::test
