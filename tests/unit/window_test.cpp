// SPDX-License-Identifier: Apache-2.0
// How the host accesses a device's memory: in pieces of any size, and never with two in one buffer.
#include "device/window.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/chaos_device.h"
#include "support/statuses.h"

namespace zero::test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes pattern(size_t bytes, int seed) {
  Bytes all(bytes);
  for (size_t i = 0; i < bytes; i++) all[i] = static_cast<uint8_t>((i * i + i / 251) % 241 + seed);
  return all;
}

std::byte* at(const DeviceMemory& memory, size_t offset) { return memory.data() + offset; }

TEST(Window, moves_any_number_of_bytes_between_a_device_and_the_host) {
  const auto world = ChaosWorld::create({.seed = 4, .guarded = true});
  const std::shared_ptr<Device> device = world->make_device();
  Window window = Window::create(device, 30'000).value();
  const auto most = static_cast<size_t>(window.most(1));
  EXPECT_EQ(static_cast<size_t>(window.most(8)), most / 8);
  for (const size_t bytes : {size_t{0}, size_t{1}, most - 1, most, most + 1, 3 * most + 7}) {
    const DeviceMemory first = DeviceMemory::allocate(device, bytes + 1, "first").value();
    const DeviceMemory second = DeviceMemory::allocate(device, bytes + 1, "second").value();
    const Bytes written = pattern(bytes, 3);
    Bytes read(bytes);
    expect_ok(window.write(at(first, 1), written.data(), bytes));
    expect_ok(window.copy(at(second, 0), at(first, 1), bytes));
    expect_ok(window.read(read.data(), at(second, 0), bytes));
    EXPECT_EQ(read == written, true) << bytes;
    expect_ok(window.clear(at(second, 0), bytes / 2));
    expect_ok(window.read(read.data(), at(second, 0), bytes));
    Bytes half = written;
    std::fill(half.begin(), half.begin() + static_cast<ptrdiff_t>(bytes / 2), uint8_t{0});
    EXPECT_EQ(read == half, true) << bytes;
  }
}

TEST(Window, of_the_host_is_the_memory_itself) {
  Window window = Window::create(nullptr, 0).value();
  Bytes memory = pattern(100, 1);
  auto* const data = reinterpret_cast<std::byte*>(memory.data());
  EXPECT_EQ(window.show(data, 100).value(), data);
  EXPECT_EQ(window.room(data).value(), data);
  expect_ok(window.store(data, 100));
  EXPECT_GT(window.most(8), int64_t{1} << 50);
  Bytes read(100);
  expect_ok(window.read(read.data(), data, 100));
  EXPECT_EQ(read, pattern(100, 1));
  expect_ok(window.write(data, pattern(50, 2).data(), 50));
  expect_ok(window.copy(data + 50, data, 50));
  expect_ok(window.clear(data, 50));
  Bytes wanted = pattern(50, 2);
  wanted.insert(wanted.begin(), 50, uint8_t{0});
  EXPECT_EQ(memory, wanted);
}

TEST(Window, writes_no_buffer_that_a_call_which_gave_up_still_reads) {
  constexpr size_t kBytes = 64, kRounds = 50;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    const auto world = ChaosWorld::create({.seed = seed});
    const std::shared_ptr<Device> device = world->make_device();
    const DeviceMemory memory = DeviceMemory::allocate(device, kRounds * kBytes, "rows").value();
    Window window = Window::create(device, 0).value();  // gives up at once
    size_t gave_up = 0;
    for (size_t row = 0; row < kRounds; row++) {
      Result<std::byte*> room = window.room(at(memory, row * kBytes));
      while (!room.ok()) room = window.room(at(memory, row * kBytes));
      std::memset(*room, static_cast<int>(row), kBytes);
      gave_up += !window.store(at(memory, row * kBytes), kBytes).ok();
    }
    EXPECT_GT(gave_up, 0u);
    expect_ok(world->run_all());
    for (size_t i = 0; i < kRounds * kBytes; i++)
      ASSERT_EQ(static_cast<size_t>(*at(memory, i)), i / kBytes) << "seed " << seed;
  }
}

}  // namespace
}  // namespace zero::test
