// SPDX-License-Identifier: Apache-2.0
// Checks that the chaos device finds the faults that it is for.
#include "support/chaos_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "support/statuses.h"

namespace zero::test {
namespace {

/// A device in a separate world, with two streams, an event and two blocks of one byte.
struct Pair {
  explicit Pair(ChaosWorld::Options options = {})
      : world(ChaosWorld::create(std::move(options))), device(world->make_device()) {
    a = made(make_stream(device));
    b = made(make_stream(device));
    event = made(make_event(device));
    from = made(DeviceMemory::allocate(device, 1, "from"));
    to = made(DeviceMemory::allocate(device, 1, "to"));
  }

  /// A writes `from`, and B reads it: after A if `rule` is kept.
  void hand_over(const char* rule) {
    EXPECT_TRUE(device->fill(a.handle(), from.data(), 5, 1).ok());
    EXPECT_TRUE(device->record(event.handle(), a.handle()).ok());
    EXPECT_TRUE(device->wait(b.handle(), event.handle(), rule).ok());
    EXPECT_TRUE(device->copy(b.handle(), to.data(), from.data(), 1).ok());
  }
  int result() {
    expect_ok(world->run_all());
    return static_cast<int>(*to.data());
  }

  std::shared_ptr<ChaosWorld> world;
  std::shared_ptr<ChaosDevice> device;
  Stream a, b;
  Event event;
  DeviceMemory from, to;
};

/// Queues work that waits at the head until `ready` returns true.
void queue(const Stream& stream, const char* what, std::function<bool()> ready,
           std::function<void()> run = {}) {
  const ChaosWork work{std::move(ready), std::move(run)};
  static_cast<ChaosStream*>(stream.handle())->queue(what, [work] { return work; });
}

TEST(ChaosDevice, a_wait_that_is_kept_is_right_for_every_seed) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const bool eager : {false, true}) {
      Pair pair({.seed = seed, .eager = eager});
      pair.hand_over("from is written");
      ASSERT_EQ(pair.result(), 5) << seed;
    }
  }
}

TEST(ChaosDevice, a_forgotten_rule_becomes_a_wrong_result_for_many_seeds_and_is_counted) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Pair pair({.seed = seed});
    pair.world->forget("from is written");
    pair.hand_over("from is written");
    wrong += pair.result() != 5;
    EXPECT_EQ(pair.world->waits("from is written"), 1);
    EXPECT_EQ(pair.world->rules(), std::set<std::string>{"from is written"});
  }
  EXPECT_GT(wrong, 40);
  EXPECT_LT(wrong, 200);
}

TEST(ChaosDevice, another_rule_is_kept_where_one_is_forgotten) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair({.seed = seed});
    pair.world->forget("another");
    pair.hand_over("from is written");
    ASSERT_EQ(pair.result(), 5);
    EXPECT_EQ(pair.world->waits("another"), 0);
  }
}

TEST(ChaosDevice, nothing_runs_until_somebody_asks) {
  Pair pair;
  pair.hand_over("from is written");
  EXPECT_EQ(*pair.from.data(), std::byte{0xFF});
  EXPECT_EQ(pair.result(), 5);
}

TEST(ChaosDevice, a_question_sometimes_runs_nothing_and_sometimes_all) {
  std::set<int> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Pair pair({.seed = seed});
    pair.hand_over("from is written");
    EXPECT_TRUE(pair.device->done(pair.event.handle()).ok());
    seen.insert(static_cast<int>(*pair.from.data()) * 1000 + static_cast<int>(*pair.to.data()));
  }
  EXPECT_TRUE(seen.count(255255) == 1 && seen.count(5255) == 1);
}

TEST(ChaosDevice, a_wait_is_for_the_record_that_was_there_when_it_was_queued) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair({.seed = seed});
    pair.hand_over("from is written");
    bool open = false;
    queue(pair.a, "a gate", [&] { return open; });
    ASSERT_TRUE(pair.device->record(pair.event.handle(), pair.a.handle()).ok());
    const Event taken = made(make_event(pair.device));
    ASSERT_TRUE(pair.device->record(taken.handle(), pair.b.handle()).ok());
    expect_ok(await(*pair.device, taken.handle(), 30'000, "what B took"));
    EXPECT_FALSE(made(pair.device->done(pair.event.handle())));
    open = true;
    ASSERT_EQ(pair.result(), 5);
  }
}

TEST(ChaosDevice, a_world_that_stands_still_names_what_is_at_its_heads) {
  Pair pair({.patience = 50});
  queue(pair.a, "a gather of rank 1", [] { return false; });
  ASSERT_TRUE(pair.device->record(pair.event.handle(), pair.a.handle()).ok());
  ASSERT_TRUE(pair.device->wait(pair.b.handle(), pair.event.handle(), "gathered").ok());
  const Status status = await(*pair.device, pair.event.handle(), 30'000, "the gather");
  expect_failure(status, ZERO_ERR_INTERNAL,
                 "stream 2 of chaos 0 (2 queued) at a gather of rank 1; stream 3 of chaos 0 (1 "
                 "queued) at wait for event 1, rule 'gathered'");
  EXPECT_EQ(pair.world->run_all().code(), ZERO_ERR_INTERNAL);
}

TEST(ChaosDevice, a_wait_of_the_host_ends_at_its_deadline) {
  Pair pair;
  queue(pair.a, "what never ends", [] { return false; });
  ASSERT_TRUE(pair.device->record(pair.event.handle(), pair.a.handle()).ok());
  const Status status = await(*pair.device, pair.event.handle(), 20, "the step");
  expect_failure(status, ZERO_ERR_TIMEOUT, "the device did not finish the step within 20 ms");
}

TEST(ChaosDevice, a_copy_from_memory_of_the_host_is_read_at_once_and_one_to_it_is_done_on_return) {
  Pair pair;
  std::vector<uint8_t> values(1, 9), back(1, 0);
  ASSERT_TRUE(pair.device->copy(pair.a.handle(), pair.from.data(), values.data(), 1).ok());
  values[0] = 0;
  ASSERT_TRUE(pair.device->copy(pair.a.handle(), back.data(), pair.from.data(), 1).ok());
  EXPECT_EQ(back[0], 9);
}

TEST(ChaosDevice, what_is_given_back_under_queued_work_is_counted) {
  Pair pair;
  pair.hand_over("from is written");
  pair.from = DeviceMemory();
  EXPECT_EQ(pair.world->released_under_work(), 1);
  EXPECT_EQ(pair.result(), 5);
}

TEST(ChaosDevice, memory_that_blocked_work_knows_is_no_longer_what_it_was) {
  Pair pair;
  bool open = false;
  queue(pair.a, "a gate", [&] { return open; });
  ASSERT_TRUE(pair.device->copy(pair.a.handle(), pair.to.data(), pair.from.data(), 1).ok());
  std::memset(pair.from.data(), 5, 1);
  pair.from = DeviceMemory();
  open = true;
  EXPECT_EQ(pair.result(), 0xFF);
}

/// Queues a fill on one stream and a copy after it on another, with their own events.
Status queue_pair(Pair& pair, const Stream& side, int value) {
  ZERO_TRY(pair.device->fill(pair.a.handle(), pair.from.data(), value, 1));
  ZERO_TRY(pair.device->record(pair.event.handle(), pair.a.handle()));
  ZERO_TRY(pair.device->wait(side.handle(), pair.event.handle(), "from is written"));
  return pair.device->copy(side.handle(), pair.to.data(), pair.from.data(), 1);
}

TEST(ChaosDevice, a_graph_does_its_work_once_a_launch_and_behind_what_the_stream_holds) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair({.seed = seed, .eager = seed % 2 == 0});
    const Stream side = made(make_stream(pair.device));
    const Event back = made(make_event(pair.device));
    ASSERT_TRUE(pair.device->begin_capture(pair.a.handle()).ok());
    ASSERT_TRUE(queue_pair(pair, side, 5).ok());
    EXPECT_NE(made(pair.device->capturing(side.handle())), 0u);
    ASSERT_TRUE(pair.device->record(back.handle(), side.handle()).ok());
    ASSERT_TRUE(pair.device->wait(pair.a.handle(), back.handle(), "joined").ok());
    const auto graph = made(pair.device->end_capture(pair.a.handle()));
    EXPECT_EQ(made(pair.device->capturing(side.handle())), 0u);
    ASSERT_TRUE(pair.world->run_all().ok());
    EXPECT_EQ(pair.result(), 0xFF) << "nothing is done before a launch";
    for (const int value : {6, 7}) {
      ASSERT_TRUE(pair.device->fill(pair.b.handle(), pair.to.data(), value, 1).ok());
      ASSERT_TRUE(pair.device->launch_graph(*graph, pair.b.handle()).ok());
      ASSERT_EQ(pair.result(), 5);
    }
  }
}

TEST(ChaosDevice, what_cannot_be_captured_spoils_the_capture) {
  const auto spoiled = [](const char* words, const auto& body) {
    Pair pair;
    const Event other = made(make_event(pair.device));
    ASSERT_TRUE(pair.device->record(other.handle(), pair.b.handle()).ok());
    ASSERT_TRUE(pair.device->begin_capture(pair.a.handle()).ok());
    ASSERT_TRUE(pair.device->record(pair.event.handle(), pair.a.handle()).ok());
    const Status status = body(pair, other.handle());
    EXPECT_NE(status.text().find(words), std::string::npos) << status.text();
    EXPECT_FALSE(pair.device->end_capture(pair.a.handle()).ok()) << words;
  };
  spoiled("not of it", [](Pair& pair, EventHandle other) {
    return pair.device->wait(pair.a.handle(), other, "a rule");
  });
  spoiled("not of it", [](Pair& pair, EventHandle) {
    const Event never = made(make_event(pair.device));
    return pair.device->wait(pair.a.handle(), never.handle(), "a rule");
  });
  spoiled("asking",
          [](Pair& pair, EventHandle) { return pair.device->done(pair.event.handle()).failure(); });
  spoiled("memory of the host", [](Pair& pair, EventHandle) {
    uint8_t value = 1;
    return pair.device->copy(pair.a.handle(), pair.to.data(), &value, 1);
  });
  spoiled("", [](Pair& pair, EventHandle) {
    return pair.device->wait(pair.b.handle(), pair.event.handle(), "never joined");
  });
}

TEST(ChaosDevice, an_event_of_a_capture_that_has_ended_is_not_waited_for) {
  Pair pair;
  ASSERT_TRUE(pair.device->begin_capture(pair.a.handle()).ok());
  ASSERT_TRUE(pair.device->record(pair.event.handle(), pair.a.handle()).ok());
  ASSERT_TRUE(pair.device->end_capture(pair.a.handle()).ok());
  EXPECT_FALSE(pair.device->wait(pair.b.handle(), pair.event.handle(), "a rule").ok());
  ASSERT_TRUE(pair.device->record(pair.event.handle(), pair.a.handle()).ok());
  EXPECT_TRUE(pair.device->wait(pair.b.handle(), pair.event.handle(), "a rule").ok());
}

TEST(ChaosDevice, all_is_given_back) {
  std::shared_ptr<ChaosWorld> world;
  {
    Pair pair;
    world = pair.world;
    pair.hand_over("from is written");
    EXPECT_EQ(world->living(), 5);
  }
  EXPECT_EQ(world->living(), 0);
}

TEST(ChaosDevice, a_failed_device_says_so_to_every_call) {
  Pair pair;
  pair.device->fail({ZERO_ERR_SYSTEM, "an illegal address"});
  EXPECT_EQ(pair.device->fill(pair.a.handle(), pair.from.data(), 0, 1).text(),
            "an illegal address");
  EXPECT_EQ(pair.device->done(pair.event.handle()).failure().text(), "an illegal address");
  EXPECT_EQ(make_stream(pair.device).failure().text(), "an illegal address");
}

}  // namespace
}  // namespace zero::test
