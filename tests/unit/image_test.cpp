// SPDX-License-Identifier: Apache-2.0
#include "device/image.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "support/expect.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

constexpr size_t kBlock = 256 * 1024, kBlocks = 8;  // of an image
constexpr int kRounds = 200;
constexpr std::byte kOld{1}, kNew{2};

std::shared_ptr<Image> image_of(std::vector<Image::Bytes> ranges, HostMemory& memory) {
  Result<std::shared_ptr<Image>> made = Image::create(std::move(ranges), memory);
  EXPECT_OK(made.failure());
  return std::move(made).value();
}

std::shared_ptr<Image> image_of(std::span<const std::byte> bytes) {
  HostMemory none;
  return image_of({bytes}, none);
}

/// Returns how many bytes of the image differ from the original, or -1 if it shows none.
int64_t wrong_bytes(Image& image, std::span<const std::byte> bytes) {
  int64_t wrong = 0;
  const Status shown = image.show_all(bytes.data(), bytes.size(), [&](Image::Bytes part) {
    wrong += std::ranges::count_if(part, [](std::byte one) { return one != kOld; });
    return Status();
  });
  return shown.ok() ? wrong : -1;
}

/// Keeps pieces and then overwrites them, in random order.
void overwrite(Image& image, std::span<std::byte> bytes, size_t piece, uint32_t seed) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < bytes.size(); at += piece) starts.push_back(at);
  std::ranges::shuffle(starts, std::mt19937(seed));
  for (const size_t at : starts) {
    image.keep(bytes.data() + at, piece);
    std::memset(bytes.data() + at, std::to_integer<int>(kNew), piece);
  }
}

TEST(Image, shows_what_was_there_while_others_overwrite_it) {
  std::vector<std::byte> memory(kBlock * kBlocks);
  for (uint32_t round = 0; round < kRounds; round++) {
    std::ranges::fill(memory, kOld);
    const std::shared_ptr<Image> image = image_of(memory);
    const std::span<std::byte> all(memory);
    std::thread first([&] { overwrite(*image, all.first(kBlock * 5 / 2), kBlock / 2, round); });
    std::thread second([&] { overwrite(*image, all.subspan(kBlock * 5 / 2), kBlock / 2, round); });
    EXPECT_EQ(wrong_bytes(*image, memory), 0) << round;
    first.join();
    second.join();
  }
}

TEST(Image, needs_memory_no_more_when_it_has_let_go) {
  const size_t bytes = kBlock * kBlocks;
  for (int round = 0; round < kRounds; round++) {
    void* const mapped =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    std::memset(mapped, std::to_integer<int>(kOld), bytes);
    const std::span memory(static_cast<const std::byte*>(mapped), bytes);
    const std::shared_ptr<Image> image = image_of(memory);
    std::thread reader([&] { EXPECT_EQ(wrong_bytes(*image, memory), 0); });
    if (round % 2 == 0) std::this_thread::yield();
    image->let_go();
    munmap(mapped, bytes);
    EXPECT_TRUE(image->whole());
    reader.join();
  }
}

TEST(Image, that_is_closed_reads_nothing) {
  const std::vector<std::byte> memory(kBlock, kOld);
  const std::shared_ptr<Image> image = image_of(memory);
  image->close();
  EXPECT_EQ(wrong_bytes(*image, memory), -1);
}

TEST(Image, keeps_where_the_one_before_has_kept) {
  const std::vector<std::byte> memory(kBlock * 2, kOld);
  HostMemory copies;
  image_of({memory}, copies)->keep_all();
  EXPECT_EQ(copies.bytes(), 0u);
  std::shared_ptr<Image> image = image_of({memory}, copies);
  copies = image->release();
  const std::byte* const place = copies.data();
  image = image_of({std::span(memory).first(kBlock)}, copies);
  EXPECT_EQ(copies.bytes(), 0u);
  image->keep_all();
  EXPECT_EQ(wrong_bytes(*image, std::span(memory).first(kBlock)), 0);
  EXPECT_EQ(image->release().data(), place);
}

TEST(Image, makes_no_pages_that_are_there_from_the_one_before) {
  static int made;
  const std::vector<std::byte> memory(kBlock * 2, kOld);
  HostMemory copies;
  for (const int expected : {2, 0}) {
    const std::shared_ptr<Image> image = image_of({memory}, copies);
    const ReplacedCall counted(&SystemCalls::madvise, [](void*, size_t, int) { return ++made, 0; });
    made = 0;
    image->keep_all();
    EXPECT_EQ(made, expected);
    copies = image->release();
  }
}

}  // namespace
}  // namespace zero::test
