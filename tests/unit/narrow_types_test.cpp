// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 bits, on every instruction set, against the definition of their formats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/float_environment.h"
#include "kernels/kernels.h"
#include "support/halves.h"
#include "support/ranks.h"

namespace zero {
namespace {

using test::HalfFormat;
using Ties = HalfFormat::Ties;

constexpr size_t kChunk = 1 << 16;

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float number(uint32_t bits) { return std::bit_cast<float>(bits); }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Type {
  const char* name;
  HalfFormat (*format)();
  uint16_t nan;
  WidenKernel KernelTable::*widen;
  NarrowKernel KernelTable::*narrow;
  RoundKernel KernelTable::*round;
};

constexpr Type kTypes[] = {{"bf16", test::bf16_format, 0x7FC0, &KernelTable::widen_bf16,
                            &KernelTable::narrow_bf16, &KernelTable::round_bf16},
                           {"f16", test::f16_format, 0x7E00, &KernelTable::widen_f16,
                            &KernelTable::narrow_f16, &KernelTable::round_f16}};

/// Every half and every middle to the next one with what lies around them, and many others.
std::vector<float> telling_floats(const HalfFormat& format) {
  std::vector<float> all;
  const auto around = [&](double value) {
    const uint32_t middle = bits(static_cast<float>(value));
    for (uint32_t word = middle - std::min(middle, 3u); word <= middle + 3; ++word) {
      all.push_back(number(word));
      all.push_back(number(word | 0x80000000));
    }
  };
  for (size_t i = 0; i < format.middles().size(); ++i) {
    around(format.value(static_cast<uint32_t>(i)));
    around(format.middles()[i]);
  }
  for (const uint32_t word : {0x7F7FFFFFu, 0x7F800000u, 0x7F800001u, 0x7FBFFFFFu, 0x7FC00000u,
                              0x7FFFFFFFu, 0x00000001u, 0x00800000u, 0x7F7F8000u, 0x7F7F7FFFu}) {
    all.push_back(number(word));
    all.push_back(number(word | 0x80000000));
  }
  std::mt19937_64 random(21);
  for (int i = 0; i < 1'000'000; ++i) all.push_back(number(static_cast<uint32_t>(random())));
  return all;
}

/// Calls body(floats) with all of telling_floats, or with all floats there are where the full run
/// is asked for; in order of their magnitude, which makes the reference quick.
template <class Body>
void for_many_floats(const HalfFormat& format, Body body) {
  if (!test::nightly_run()) return body(telling_floats(format));
  std::vector<float> chunk(kChunk);
  for (uint64_t first = 0; first < uint64_t{1} << 32; first += kChunk) {
    for (size_t i = 0; i < kChunk; ++i) chunk[i] = number(static_cast<uint32_t>(first + i));
    body(chunk);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class NarrowTypes : public ::testing::TestWithParam<Type> {};

INSTANTIATE_TEST_SUITE_P(Type, NarrowTypes, ::testing::ValuesIn(kTypes),
                         [](const auto& made) { return std::string(made.param.name); });

TEST_P(NarrowTypes, all_halves_widen_exactly_and_come_back) {
  const Type& type = GetParam();
  const HalfFormat format = type.format();
  std::vector<uint16_t> halves(kChunk), back(kChunk);
  for (size_t i = 0; i < kChunk; ++i) halves[i] = static_cast<uint16_t>(i);
  for (const Isa isa : available_isas()) {
    const KernelTable& table = kernel_table(isa);
    std::vector<float> wide(kChunk), rounded(kChunk);
    (table.*type.widen)(wide.data(), halves.data(), kChunk);
    (table.*type.narrow)(back.data(), wide.data(), kChunk);
    (table.*type.round)(rounded.data(), wide.data(), kChunk);
    for (size_t i = 0; i < kChunk; ++i) {
      if (format.is_nan(halves[i])) {
        ASSERT_TRUE(std::isnan(wide[i])) << table.name << " " << i;
        ASSERT_EQ(back[i], type.nan) << table.name << " " << i;
        ASSERT_EQ(bits(rounded[i]), 0x7FC00000u) << table.name << " " << i;
      } else {
        const auto expected = static_cast<float>(format.value(halves[i]));
        ASSERT_EQ(bits(wide[i]), bits(expected)) << table.name << " " << i;
        ASSERT_EQ(back[i], halves[i]) << table.name << " " << i;
        ASSERT_EQ(bits(rounded[i]), bits(expected)) << table.name << " " << i;
      }
    }
  }
}

TEST_P(NarrowTypes, floats_become_the_nearest_half_ties_to_even) {
  const Type& type = GetParam();
  HalfFormat format = type.format();
  const KernelTable& scalar = kernel_table(Isa::scalar);
  for_many_floats(format, [&](const std::vector<float>& floats) {
    std::vector<uint16_t> expected(floats.size()), halves(floats.size());
    for (size_t i = 0; i < floats.size(); ++i) {
      expected[i] = std::isnan(floats[i]) ? type.nan : format.nearest(floats[i], Ties::to_even);
    }
    std::vector<float> wide(floats.size()), rounded(floats.size());
    (scalar.*type.widen)(wide.data(), expected.data(), expected.size());
    for (const Isa isa : available_isas()) {
      const KernelTable& table = kernel_table(isa);
      (table.*type.narrow)(halves.data(), floats.data(), floats.size());
      rounded = floats;
      (table.*type.round)(rounded.data(), rounded.data(), floats.size());
      if (halves == expected && same_bits(rounded, wide)) continue;
      for (size_t i = 0; i < floats.size(); ++i) {
        ASSERT_EQ(halves[i], expected[i]) << table.name << std::hexfloat << " " << floats[i];
        ASSERT_EQ(bits(rounded[i]), bits(wide[i])) << table.name << std::hexfloat << floats[i];
      }
    }
  });
}

TEST_P(NarrowTypes, arrays_of_any_length_and_place_are_converted_and_nothing_beside_them) {
  const Type& type = GetParam();
  std::mt19937_64 random(5);
  std::vector<float> floats(300);
  for (float& value : floats) value = static_cast<float>(random() % 4096) / 16 - 128;
  std::vector<uint16_t> all(300);
  (kernel_table(Isa::scalar).*type.narrow)(all.data(), floats.data(), 300);
  for (const Isa isa : available_isas()) {
    const KernelTable& table = kernel_table(isa);
    for (size_t count = 0; count <= 130; ++count) {
      for (const size_t from : {0, 1, 3, 8}) {
        const size_t to = count % 7;
        std::vector<uint16_t> halves(150, 0x1234);
        (table.*type.narrow)(halves.data() + to, floats.data() + from, count);
        std::vector<float> wide(150, 77.0f), rounded(150, 77.0f);
        (table.*type.widen)(wide.data() + to, all.data() + from, count);
        (table.*type.round)(rounded.data() + to, floats.data() + from, count);
        for (size_t i = 0; i < 150; ++i) {
          const bool inside = i >= to && i < to + count;
          ASSERT_EQ(halves[i], inside ? all[i - to + from] : 0x1234) << count;
          if (!inside) {
            ASSERT_EQ(wide[i], 77.0f) << count;
          }
          ASSERT_EQ(rounded[i], wide[i]) << count;
        }
      }
    }
  }
}

// ---- A bf16 parameter and the remainder of its master

TEST(Remainder, a_master_is_split_by_rounding_half_away_from_zero_and_joined_exactly) {
  HalfFormat format = test::bf16_format();
  for_many_floats(format, [&](const std::vector<float>& floats) {
    const size_t count = floats.size();
    std::vector<uint16_t> expected(count), param(count), remainder(count);
    for (size_t i = 0; i < count; ++i) {
      expected[i] = std::isnan(floats[i]) ? 0x7FC0 : format.nearest(floats[i], Ties::away);
    }
    std::vector<float> joined(count), masters = floats;
    for (float& master : masters) {
      if (std::isnan(master)) master = number(0x7FC00000);
    }
    for (const Isa isa : available_isas()) {
      const KernelTable& table = kernel_table(isa);
      table.split_remainder(param.data(), remainder.data(), floats.data(), count);
      table.join_remainder(joined.data(), param.data(), remainder.data(), count);
      if (param == expected && same_bits(joined, masters)) continue;
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(param[i], expected[i]) << table.name << std::hexfloat << " " << floats[i];
        ASSERT_EQ(bits(joined[i]), bits(masters[i]))
            << table.name << std::hexfloat << " " << floats[i];
      }
    }
  });
}

TEST(Remainder, arrays_of_any_length_and_place_are_split_and_joined_and_nothing_beside_them) {
  std::mt19937_64 random(6);
  std::vector<float> masters(300);
  for (float& value : masters) value = number(static_cast<uint32_t>(random()) & 0x7F7FFFFF);
  for (const Isa isa : available_isas()) {
    const KernelTable& table = kernel_table(isa);
    for (size_t count = 0; count <= 130; ++count) {
      const size_t to = count % 7, from = count % 5;
      std::vector<uint16_t> param(150, 0x1234), remainder(150, 0x1234);
      std::vector<float> joined(300, 77.0f);
      table.split_remainder(param.data() + to, remainder.data() + to, masters.data() + from, count);
      table.join_remainder(joined.data() + from, param.data() + to, remainder.data() + to, count);
      for (size_t i = 0; i < 300; ++i) {
        const bool inside = i >= from && i < from + count;
        ASSERT_EQ(bits(joined[i]), bits(inside ? masters[i] : 77.0f)) << count;
      }
      for (size_t i = 0; i < 150; ++i) {
        if (i >= to && i < to + count) continue;
        ASSERT_EQ(param[i], 0x1234) << count;
        ASSERT_EQ(remainder[i], 0x1234) << count;
      }
    }
  }
}

}  // namespace
}  // namespace zero
