// SPDX-License-Identifier: Apache-2.0
// Tests the machine that runs the PTX of kernels: it computes the same as the host, and ends a
// launch with an illegal access. Each kernel of ptx_kernels.cu is used here by its name.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/ptx/machine.h"
#include "unit/ptx_arithmetic.h"

namespace zero::test::ptx {
namespace {

constexpr u32 kThreads = 64;

const Kernel& kernel(const std::string& name) {
  const std::string mangled = std::to_string(name.size()) + name;
  for (const Kernel& one : all_kernels())
    if (std::string(one.name).find(mangled) != std::string::npos) return one;
  throw std::runtime_error("no kernel " + name);
}

struct Words {
  const u32* in;
  u32* out;
  u32* more;
  u32 count;
};

class Launch {
 public:
  explicit Launch(std::string name) : name_(std::move(name)) {
    for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<u32>(i * i);
  }
  /// Runs the kernel. Returns what ended it, or "" if nothing did.
  std::string run(u32 blocks = 1, u32 count = kThreads) {
    const Words words = {in.data(), out.data(), more.data(), count};
    Memory memory({{in.data(), 4 * kThreads * sizeof(u32), false, "in"},
                   {out.data(), kThreads * sizeof(u32), true, "out"},
                   {more.data(), kThreads * sizeof(u32), true, "more"}},
                  kThreads);
    try {
      ptx::run(kernel(name_), &words, blocks, kThreads, memory, seed++);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "";
  }

  u64 seed = 1;
  // One more element than is given.
  alignas(16) std::array<u32, 4 * kThreads + 1> in{};
  std::array<u32, kThreads + 1> out{}, more{};

 private:
  const std::string name_;
};

TEST(Ptx, computes_what_the_host_computes) {
  std::mt19937_64 random(7);
  const double special[] = {0.0, -0.0,      1.0,      -1.0,     INFINITY, -INFINITY,
                            NAN, 0x1p-1074, 0x1p-149, 0x1p-140, 3e38};
  std::vector<Arguments> in(1000);
  for (size_t i = 0; i < in.size(); i++) {
    const auto real = [&] {
      return random() % 4 == 0 ? special[random() % std::size(special)]
                               : std::ldexp(static_cast<double>(random() % 100001) - 50000,
                                            static_cast<int>(random() % 40) - 20);
    };
    const auto word = [&] { return random() >> random() % 64; };
    in[i] = {static_cast<u32>(word()),   static_cast<u32>(word()),   word(), word(),
             static_cast<float>(real()), static_cast<float>(real()), real(), real()};
  }
  std::vector<u64> expected(in.size() * kResults), found(expected.size());
  Computed computed = {in.data(), expected.data(), static_cast<u32>(in.size())};
  for (u32 i = 0; i < in.size(); i++) compute(computed, i);
  computed.out = found.data();
  Memory memory({{in.data(), in.size() * sizeof(Arguments), false, "in"},
                 {found.data(), found.size() * sizeof(u64), true, "out"}},
                kThreads);
  run(kernel("compute_each"), &computed, 16, kThreads, memory, 1);
  for (size_t i = 0; i < found.size(); i++)
    ASSERT_EQ(found[i], expected[i]) << "result " << i % kResults << " of " << i / kResults;
}

/// A launch with a fault, which is reported with these words.
struct Faulty {
  const char *kernel, *what;
  u32 blocks = 1, count = kThreads;
};

class PtxFault : public ::testing::TestWithParam<Faulty> {};

TEST_P(PtxFault, is_found) {
  const auto& [name, what, blocks, count] = GetParam();
  const std::string found = Launch(name).run(blocks, count);
  EXPECT_NE(found.find(what), std::string::npos) << found;
  EXPECT_NE(found.find(name), std::string::npos) << found;
}

INSTANTIATE_TEST_SUITE_P(
    , PtxFault,
    ::testing::Values(
        // The values are right nevertheless.
        Faulty{"sums_of_blocks_without_fences", "without an order", 4},
        Faulty{"turn_without_barrier", "of the block's shared memory"},
        Faulty{"write_one_too_many", "0 bytes behind the end of out"},
        Faulty{"read_one_too_many", "0 bytes behind the end of in", 1, 4},
        Faulty{"write_what_is_read", "writes to in"},
        Faulty{"read_wide_at", "16 does not divide", 1, 2},
        Faulty{"count_in_all_blocks", "byte 0 of out, which thread 0 of block", 4},
        Faulty{"read_what_the_neighbour_wrote", "without an order"},
        Faulty{"write_what_the_neighbour_read", "without an order"},
        Faulty{"index_in_64_bits", "touches memory that the launch was not given", 1, 4},
        Faulty{"meet_some", "a barrier that thread", 1, 40},
        Faulty{"exchange_some", "a shuffle that lane", 1, 40}),
    [](const auto& made) { return made.param.kernel; });

TEST(Ptx, nothing_is_found_where_nothing_is_wrong) {
  for (const auto& [name, count] : {std::pair("read_wide_at", 4u),
                                    {"index_in_32_bits", 4u},  // 2^32 becomes 0
                                    {"meet_some", kThreads},
                                    {"exchange_some", kThreads}})
    EXPECT_EQ(Launch(name).run(1, count), "") << name;
}

TEST(Ptx, blocks_come_in_any_order_and_sum_up_by_fences_and_atomics) {
  Launch launch("sums_of_blocks");
  u32 sum = 0;
  for (u32 i = 0; i < 4 * kThreads; i++) sum += launch.in[i];
  for (int i = 0; i < 20; i++) {
    launch.more = {};
    launch.out = {};
    EXPECT_EQ(launch.run(4), "");
    EXPECT_EQ(launch.out[0], sum);
  }
  Launch counts("count_in_all_blocks_by_atomics");
  EXPECT_EQ(counts.run(4), "");
  EXPECT_EQ(counts.out[0], 4u);
}

TEST(Ptx, threads_exchange_by_barriers_and_lanes_as_they_say) {
  Launch turn("turn"), exchange("exchange");
  EXPECT_EQ(turn.run(), "");
  EXPECT_EQ(exchange.run(), "");
  for (u32 i = 0; i < kThreads; i++) {
    EXPECT_EQ(turn.out[i], turn.in[kThreads - 1 - i]);
    EXPECT_EQ(exchange.out[i], exchange.in[i ^ 5] + exchange.in[i ^ 8]);
  }
}

/// Two words, and accesses to them by threads of separate blocks, one after the other.
class TwoWords {
 public:
  void loads(u32 block, u32 word = 0) { touch(block, Use::loads, false, word, 4); }
  void loads_volatile(u32 block) { touch(block, Use::loads, true, 0, 4); }
  void stores(u32 block) { touch(block, Use::stores, false, 0, 4); }
  void adds(u32 block, u32 word = 0, u32 bytes = 4) {
    touch(block, Use::atomic, false, word, bytes);
  }

 private:
  void touch(u32 block, Use use, bool is_volatile, u32 word, u32 bytes) {
    Toucher& toucher = touchers_.try_emplace(block, Toucher{block, block}).first->second;
    memory_.touch(toucher, use, is_volatile, reinterpret_cast<u64>(&words_[word]), bytes);
  }

  alignas(8) u32 words_[2] = {};
  Memory memory_{{{words_, sizeof words_, true, "words"}}, 1};
  std::map<u32, Toucher> touchers_;
};

TEST(Ptx, an_atomic_hides_no_access_that_came_before_it) {
  TwoWords stored;
  stored.stores(0);
  stored.adds(0);
  EXPECT_THROW(stored.adds(1), Fault);

  TwoWords read;
  read.loads(0);
  read.loads_volatile(0);
  EXPECT_THROW(read.adds(1), Fault);

  for (const u32 first : {0u, 1u}) {
    TwoWords added;
    added.adds(first);
    added.adds(1 - first);
    EXPECT_THROW(added.loads(first), Fault);
  }
}

TEST(Ptx, atomics_of_unlike_widths_are_no_order_on_a_word) {
  TwoWords wide;
  wide.adds(0, 0, 8);
  wide.adds(1, 0, 8);
  EXPECT_THROW(wide.adds(2, 1, 4), Fault);
  TwoWords narrow;
  narrow.adds(0, 0);
  EXPECT_NO_THROW(narrow.adds(1, 1));
}

}  // namespace
}  // namespace zero::test::ptx
