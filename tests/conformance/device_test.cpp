// SPDX-License-Identifier: Apache-2.0
// What every device promises. A new device needs a line in the list of cases at the end.
#include "device/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "support/chaos_device.h"
#include "support/gpu_wanted.h"

namespace zero::test {
namespace {

using DevicePtr = std::shared_ptr<Device>;

struct DeviceCase {
  const char* name;
  Result<DevicePtr> (*open)(int32_t ordinal);
};
void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

constexpr int64_t kPatienceMs = 30'000;
constexpr size_t kCount = 5000;
constexpr size_t kRounds = 40;

class EveryDevice : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    Result<DevicePtr> opened = GetParam().open(0);
    if (!opened.ok()) {
      ASSERT_FALSE(gpu_is_wanted()) << opened.failure().text();
      GTEST_SKIP() << opened.failure().text();
    }
    device_ = *opened;
    stream_ = made(make_stream(device_));
    other_ = made(make_stream(device_));
    event_ = made(make_event(device_));
  }

  template <class T>
  static T made(Result<T> result) {
    if (!result.ok()) ADD_FAILURE() << result.failure().text();
    return result.ok() ? std::move(*result) : T();
  }
  static void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.text(); }

  DeviceMemory memory(size_t bytes) {
    return made(DeviceMemory::allocate(device_, bytes, "a test's memory"));
  }
  HostBuffer host(size_t bytes) {
    return made(HostBuffer::allocate(device_, bytes, "a test's buffer"));
  }
  void finish(const Stream& stream) {
    const Event end = made(make_event(device_));
    ok(device_->record(end.handle(), stream.handle()));
    ok(await(*device_, end.handle(), kPatienceMs, "a test's work"));
  }
  /// Returns the bytes of `memory` in the order of `stream`.
  std::vector<uint8_t> read(const DeviceMemory& memory, const Stream& stream) {
    const HostBuffer buffer = host(memory.bytes());
    ok(device_->copy(stream.handle(), buffer.data(), memory.data(), memory.bytes()));
    finish(stream);
    const auto* const first = reinterpret_cast<const uint8_t*>(buffer.data());
    return {first, first + memory.bytes()};
  }
  /// Checks that there is a block for each round, in the order of the other stream.
  void expect_rounds(const DeviceMemory& results) {
    std::vector<uint8_t> wanted;
    for (size_t round = 0; round < kRounds; ++round)
      wanted.insert(wanted.end(), kCount, static_cast<uint8_t>(round));
    EXPECT_EQ(read(results, other_), wanted);
  }
  void expect_refused(const Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), ZERO_ERR_ARGUMENT);
    EXPECT_NE(status.text().find(words), std::string::npos) << status.text();
  }

  DevicePtr device_;
  Stream stream_, other_;
  Event event_;
};

TEST_P(EveryDevice, a_stream_does_its_work_in_order) {
  const DeviceMemory a = memory(kCount), b = memory(kCount), c = memory(kCount);
  ok(device_->fill(stream_.handle(), a.data(), 1, kCount));
  ok(device_->copy(stream_.handle(), b.data(), a.data(), kCount));
  ok(device_->fill(stream_.handle(), a.data(), 2, kCount));
  ok(device_->copy(stream_.handle(), c.data(), a.data(), kCount / 2));
  ok(device_->copy(stream_.handle(), c.data() + kCount / 2, b.data(), kCount / 2));
  ok(device_->fill(stream_.handle(), b.data(), 3, kCount));
  std::vector<uint8_t> wanted(kCount, 2);
  std::fill(wanted.begin() + kCount / 2, wanted.end(), uint8_t{1});
  EXPECT_EQ(read(c, stream_), wanted);
}

TEST_P(EveryDevice, values_go_to_the_device_and_back) {
  const DeviceMemory there = memory(kCount);
  const HostBuffer out = host(kCount), back = host(kCount);
  for (size_t i = 0; i < kCount; ++i) out.data()[i] = static_cast<std::byte>(i * i % 251);
  ok(device_->copy(stream_.handle(), there.data(), out.data(), kCount));
  ok(device_->copy(stream_.handle(), back.data(), there.data(), kCount));
  finish(stream_);
  EXPECT_EQ(std::memcmp(out.data(), back.data(), kCount), 0);
}

TEST_P(EveryDevice, the_default_stream_does_work) {
  const DeviceMemory there = memory(kCount);
  ok(device_->fill(nullptr, there.data(), 7, kCount));
  ok(device_->record(event_.handle(), nullptr));
  ok(device_->wait(stream_.handle(), event_.handle(), "default stream"));
  EXPECT_EQ(read(there, stream_), std::vector<uint8_t>(kCount, 7));
}

// Two streams hand a block back and forth. A round is wrong if either wait is missing.
TEST_P(EveryDevice, a_stream_waits_for_what_another_recorded) {
  const DeviceMemory shared = memory(kCount), results = memory(kRounds * kCount);
  const Event written = made(make_event(device_)), taken = made(make_event(device_));
  for (size_t round = 0; round < kRounds; ++round) {
    ok(device_->wait(stream_.handle(), taken.handle(), "taken before it is written again"));
    ok(device_->fill(stream_.handle(), shared.data(), static_cast<int>(round), kCount));
    ok(device_->record(written.handle(), stream_.handle()));
    ok(device_->wait(other_.handle(), written.handle(), "written before it is taken"));
    ok(device_->copy(other_.handle(), results.data() + round * kCount, shared.data(), kCount));
    ok(device_->record(taken.handle(), other_.handle()));
  }
  expect_rounds(results);
}

TEST_P(EveryDevice, an_event_never_recorded_is_done_and_holds_nobody_up) {
  EXPECT_TRUE(made(device_->done(event_.handle())));
  ok(device_->wait(stream_.handle(), event_.handle(), "nothing"));
  finish(stream_);
}

TEST_P(EveryDevice, an_event_is_done_when_all_that_was_queued_before_it_is) {
  const DeviceMemory there = memory(kCount);
  const HostBuffer back = host(kCount);
  for (int round = 0; round < 20; ++round) {
    std::memset(back.data(), 0xEE, kCount);
    ok(device_->fill(stream_.handle(), there.data(), round, kCount));
    ok(device_->copy(stream_.handle(), back.data(), there.data(), kCount));
    ok(device_->record(event_.handle(), stream_.handle()));
    while (!made(device_->done(event_.handle()))) std::this_thread::yield();
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(back.data()[i], static_cast<std::byte>(round));
  }
}

TEST_P(EveryDevice, a_wait_of_the_host_asks_whether_to_stop) {
  int asked = 0;
  const auto stop = [&] {
    ++asked;
    return Status(ZERO_ERR_ABORTED, "enough");
  };
  const DeviceMemory there = memory(size_t{8} << 20);
  for (int i = 0; i < 50; ++i) ok(device_->fill(stream_.handle(), there.data(), i, there.bytes()));
  ok(device_->record(event_.handle(), stream_.handle()));
  const Status status = await(*device_, event_.handle(), kPatienceMs, "work", stop);
  EXPECT_EQ(status.code(), asked > 0 ? ZERO_ERR_ABORTED : ZERO_OK);
  finish(stream_);
}

TEST_P(EveryDevice, memory_is_aligned_and_zeroed_where_that_is_asked_for) {
  const DeviceMemory zeroed = made(DeviceMemory::allocate_zeroed(device_, kCount, "zeros"));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(zeroed.data()) % 256, 0u);
  EXPECT_EQ(read(zeroed, stream_), std::vector<uint8_t>(kCount, 0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory(1).data()) % 256, 0u);
  EXPECT_EQ(memory(0).data(), nullptr);
}

TEST_P(EveryDevice, memory_is_moved_and_not_given_back_twice) {
  DeviceMemory first = memory(kCount);
  const std::byte* const data = first.data();
  DeviceMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  second = memory(kCount);
  ok(device_->check(second.data(), kCount, "memory"));
}

TEST_P(EveryDevice, memory_of_the_device_and_host_buffers_pass_the_check) {
  const DeviceMemory there = memory(kCount);
  ok(device_->check(there.data(), kCount, "parameter 'w'"));
  ok(device_->check(there.data() + 100, kCount - 100, "parameter 'w'"));
  ok(device_->check(host(kCount).data(), kCount, "parameter 'w'"));
  ok(device_->check(nullptr, 0, "parameter 'w'"));
}

TEST_P(EveryDevice, what_the_device_cannot_reach_is_refused_by_name) {
  const std::vector<float> elsewhere(kCount);
  expect_refused(device_->check(elsewhere.data(), 16, "gradient of 'w'"),
                 "gradient of 'w' is host memory");
  expect_refused(device_->check(nullptr, 16, "gradient of 'w'"), "gradient of 'w' is NULL");
}

TEST_P(EveryDevice, more_than_was_allocated_is_refused) {
  const DeviceMemory there = memory(size_t{4} << 20);
  expect_refused(device_->check(there.data(), size_t{1} << 45, "gradient of 'w'"),
                 "its memory ends after");
}

TEST_P(EveryDevice, shared_memory_that_is_not_handed_out_is_zeroed_and_queued_work_uses_it) {
  auto block = SharedBlock::allocate_zeroed(device_, kCount, "a test's memory");
  if (block.failure().code() == ZERO_ERR_UNSUPPORTED) GTEST_SKIP() << block.failure().text();
  ASSERT_TRUE(block.ok()) << block.failure().text();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % 256, 0u);
  ok(device_->check(block->data(), kCount, "memory"));
  const HostBuffer results = host(kCount);
  ok(device_->fill(stream_.handle(), block->data() + 1, 7, kCount - 1));
  finish(stream_);
  ok(device_->copy(stream_.handle(), results.data(), block->data(), kCount));
  finish(stream_);
  EXPECT_EQ(results.data()[0], std::byte{0});
  EXPECT_EQ(results.data()[1], std::byte{7});
  EXPECT_EQ(results.data()[kCount - 1], std::byte{7});
}

TEST_P(EveryDevice, a_descriptor_is_memory_for_whoever_maps_it_and_as_long_as_any_does) {
  Result<Fd> fd = device_->create_shared(kCount, "a test's memory");
  if (fd.failure().code() == ZERO_ERR_UNSUPPORTED) GTEST_SKIP() << fd.failure().text();
  ASSERT_TRUE(fd.ok()) << fd.failure().text();
  const auto map = [&] { return made(map_shared(device_, fd->get(), kCount, "memory")); };
  SharedBlock first = map();
  const SharedBlock second = map();
  fd->reset();
  EXPECT_NE(first.data(), second.data());
  ok(device_->fill(stream_.handle(), first.data(), 9, kCount));
  finish(stream_);
  first = SharedBlock();
  const HostBuffer buffer = host(kCount);
  ok(device_->copy(stream_.handle(), buffer.data(), second.data(), kCount));
  finish(stream_);
  for (size_t i = 0; i < kCount; i++) ASSERT_EQ(buffer.data()[i], std::byte{9}) << i;
}

// Two streams hand a block back and forth with words, as they do with events above.
TEST_P(EveryDevice, a_stream_waits_for_a_word_that_another_writes) {
  alignas(4096) static uint32_t words[1024];
  std::memset(words, 0, sizeof words);
  Result<OpenedHost> opened = open_host(device_, words, sizeof words);
  if (opened.failure().code() == ZERO_ERR_UNSUPPORTED) GTEST_SKIP() << opened.failure().text();
  ASSERT_TRUE(opened.ok()) << opened.failure().text();
  const Result<OpenedHost> again = open_host(device_, words, sizeof words);
  ASSERT_TRUE(again.ok()) << again.failure().text();
  *opened = OpenedHost();  // the other one still keeps it open
  uint32_t* const written = &words[0];
  uint32_t* const taken = &words[1];
  const DeviceMemory shared = memory(kCount), results = memory(kRounds * kCount);
  for (uint32_t round = 0; round < kRounds; ++round) {
    const WordStep to_fill[] = {{WordStep::wait, taken, round}};
    const WordStep filled[] = {{WordStep::write, written, round + 1}};
    const WordStep to_take[] = {{WordStep::wait, written, round + 1}};
    const WordStep taken_by_now[] = {{WordStep::write, taken, round + 1}};
    ok(device_->words(stream_.handle(), to_fill, "taken before it is written again"));
    ok(device_->fill(stream_.handle(), shared.data(), static_cast<int>(round), kCount));
    ok(device_->words(stream_.handle(), filled, ""));
    ok(device_->words(other_.handle(), to_take, "written before it is taken"));
    ok(device_->copy(other_.handle(), results.data() + round * kCount, shared.data(), kCount));
    ok(device_->words(other_.handle(), taken_by_now, ""));
  }
  expect_rounds(results);
}

TEST_P(EveryDevice, memory_of_another_device_is_refused) {
  const Result<DevicePtr> second = GetParam().open(1);
  if (!second.ok()) GTEST_SKIP() << second.failure().text();
  const DeviceMemory theirs = made(DeviceMemory::allocate(*second, kCount, "theirs"));
  expect_refused(device_->check(theirs.data(), kCount, "gradient of 'w'"),
                 "gradient of 'w' is memory of");
  const Stream stream = made(make_stream(*second));
  EXPECT_EQ(device_->check_stream(stream.handle()).code(), ZERO_ERR_ARGUMENT);
}

TEST_P(EveryDevice, its_streams_are_known_and_capture_nothing) {
  ok(device_->check_stream(nullptr));
  ok(device_->check_stream(stream_.handle()));
  EXPECT_EQ(made(device_->capturing(stream_.handle())), 0u);
  EXPECT_EQ(made(device_->capturing(nullptr)), 0u);
}

TEST_P(EveryDevice, more_memory_than_there_is_is_refused_by_name_and_size) {
  const Result<DeviceMemory> memory =
      DeviceMemory::allocate(device_, size_t{1} << 50, "optimizer state");
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.failure().code(), ZERO_ERR_MEMORY);
  EXPECT_NE(memory.failure().text().find("1125899906842624 bytes of optimizer state"),
            std::string::npos)
      << memory.failure().text();
  ok(device_->check_stream(stream_.handle()));
}

TEST_P(EveryDevice, threads_use_it_at_once) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([this, number] {
      const Stream stream = made(make_stream(device_));
      const DeviceMemory there = memory(kCount);
      for (int round = 0; round < 20; ++round) {
        const int byte = number * 20 + round;
        ok(device_->fill(stream.handle(), there.data(), byte, kCount));
        EXPECT_EQ(read(there, stream), std::vector<uint8_t>(kCount, static_cast<uint8_t>(byte)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <uint64_t seed, bool eager>
Result<DevicePtr> open_chaos(int32_t ordinal) {
  static std::weak_ptr<ChaosWorld> current;  // both devices of a test are in one world
  std::shared_ptr<ChaosWorld> world = current.lock();
  if (world == nullptr) current = world = ChaosWorld::create({.seed = seed, .eager = eager});
  return DevicePtr(world->make_device(ordinal));
}

INSTANTIATE_TEST_SUITE_P(, EveryDevice,
                         ::testing::Values(DeviceCase{"chaos_1", open_chaos<1, false>},
                                           DeviceCase{"chaos_2", open_chaos<2, false>},
                                           DeviceCase{"chaos_3", open_chaos<3, true>},
                                           DeviceCase{"chaos_4", open_chaos<4, true>},
                                           DeviceCase{"cuda", open_cuda}),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace zero::test
