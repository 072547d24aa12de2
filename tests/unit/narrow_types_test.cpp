// SPDX-License-Identifier: Apache-2.0
// 16-bit numbers on every instruction set, compared with the definition of their formats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float_environment.h"
#include "kernels/kernels.h"
#include "random_elements.h"
#include "support/halves.h"
#include "support/nightly.h"

namespace zero {
namespace {

using test::Elements;
using test::HalfFormat;
using test::Kind;
using test::Random;
using Ties = HalfFormat::Ties;

constexpr size_t kChunk = 1 << 16;

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float number(uint32_t bits) { return std::bit_cast<float>(bits); }

/// Compares single elements only if anything differs, because there are many.
template <class T>
void expect_same_bits(const std::vector<T>& made, const std::vector<T>& expected,
                      const std::vector<float>& of, const KernelTable& table) {
  const auto bits_at = [](const std::vector<T>& all, size_t i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &all[i], sizeof(T));
    return bits;
  };
  if (std::memcmp(made.data(), expected.data(), made.size() * sizeof(T)) == 0) return;
  for (size_t i = 0; i < made.size(); ++i)
    ASSERT_EQ(bits_at(made, i), bits_at(expected, i))
        << table.name << std::hexfloat << " " << of[i];
}

struct Type {
  DType dtype;
  const HalfFormat& format;
  uint16_t nan;
};

constexpr Type kTypes[] = {{DType::bf16, test::kBf16, 0x7FC0}, {DType::f16, test::kF16, 0x7E00}};

/// Returns every half and every midpoint to the next one with their neighbours, and many other
/// floats.
std::vector<float> telling_floats(const HalfFormat& format) {
  std::vector<float> all;
  const auto around = [&](double value) {
    const uint32_t middle = bits(static_cast<float>(value));
    for (uint32_t word = middle - std::min(middle, 3u); word <= middle + 3; ++word) {
      all.push_back(number(word));
      all.push_back(number(word | 0x80000000));
    }
  };
  for (uint32_t half = 0; half < format.infinity(); ++half) {
    around(format.value(half));
    around(format.middle(half));
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

/// Calls body(floats) with all of telling_floats, or with all floats in nightly runs.
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
                         [](const auto& made) { return dtype_name(made.param.dtype); });

TEST_P(NarrowTypes, all_halves_widen_exactly_and_come_back) {
  const Type& type = GetParam();
  const HalfFormat& format = type.format;
  std::vector<uint16_t> halves(kChunk), back(kChunk), expected_back(kChunk);
  std::vector<float> wide(kChunk), rounded(kChunk), expected(kChunk);
  for (size_t i = 0; i < kChunk; ++i) {
    halves[i] = static_cast<uint16_t>(i);
    expected_back[i] = format.is_nan(halves[i]) ? type.nan : halves[i];
    expected[i] =
        format.is_nan(halves[i]) ? number(0x7FC00000) : static_cast<float>(format.value(halves[i]));
  }
  for (const Isa isa : available_isas()) {
    const KernelTable& table = kernel_table(isa);
    table.half(type.dtype).widen(wide.data(), halves.data(), kChunk);
    table.half(type.dtype).narrow(back.data(), wide.data(), kChunk);
    table.half(type.dtype).round(rounded.data(), wide.data(), kChunk);
    expect_same_bits(back, expected_back, expected, table);
    expect_same_bits(rounded, expected, expected, table);
    for (float& value : wide) {
      if (std::isnan(value)) value = number(0x7FC00000);
    }
    expect_same_bits(wide, expected, expected, table);
  }
}

TEST_P(NarrowTypes, floats_become_the_nearest_half_ties_to_even) {
  const Type& type = GetParam();
  const HalfFormat& format = type.format;
  const KernelTable& scalar = kernel_table(Isa::scalar);
  for_many_floats(format, [&](const std::vector<float>& floats) {
    std::vector<uint16_t> expected(floats.size()), halves(floats.size());
    for (size_t i = 0; i < floats.size(); ++i) {
      expected[i] = std::isnan(floats[i]) ? type.nan : format.nearest(floats[i], Ties::to_even);
    }
    std::vector<float> wide(floats.size()), rounded(floats.size());
    scalar.half(type.dtype).widen(wide.data(), expected.data(), expected.size());
    for (const Isa isa : available_isas()) {
      const KernelTable& table = kernel_table(isa);
      table.half(type.dtype).narrow(halves.data(), floats.data(), floats.size());
      rounded = floats;
      table.half(type.dtype).round(rounded.data(), rounded.data(), floats.size());
      expect_same_bits(halves, expected, floats, table);
      expect_same_bits(rounded, wide, floats, table);
    }
  });
}

/// Calls body(table, count, shift) with every instruction set, for arrays of many lengths and start
/// positions.
template <class Body>
void for_many_arrays(const Body& body) {
  for (const Isa isa : available_isas()) {
    for (size_t count = 0; count <= 130; ++count) {
      for (const size_t shift : {0, 1, 3, 8}) body(kernel_table(isa), count, shift);
    }
  }
}

TEST_P(NarrowTypes, arrays_of_any_length_and_place_are_converted_and_nothing_beside_them) {
  const Type& type = GetParam();
  const KernelTable& scalar = kernel_table(Isa::scalar);
  Random random(5);
  for_many_arrays([&](const KernelTable& table, size_t count, size_t shift) {
    Elements floats(random, DType::f32, count, shift, Kind::any_exponent), rounded = floats;
    Elements halves(random, type.dtype, count, count % 7, Kind::any_exponent);
    Elements expected_floats = floats, expected_rounded = floats, expected_halves = halves;
    scalar.half(type.dtype).narrow(expected_halves.as<uint16_t>(), floats.as<float>(), count);
    table.half(type.dtype).narrow(halves.as<uint16_t>(), floats.as<float>(), count);
    ASSERT_TRUE(halves.equals(expected_halves)) << table.name;
    scalar.half(type.dtype).round(expected_rounded.as<float>(), floats.as<float>(), count);
    table.half(type.dtype).round(rounded.as<float>(), floats.as<float>(), count);
    ASSERT_TRUE(rounded.equals(expected_rounded)) << table.name;
    scalar.half(type.dtype).widen(expected_floats.as<float>(), halves.as<uint16_t>(), count);
    table.half(type.dtype).widen(floats.as<float>(), halves.as<uint16_t>(), count);
    ASSERT_TRUE(floats.equals(expected_floats)) << table.name;
  });
}

// ---- A bf16 parameter and the remainder of its master weight

TEST(Remainder, a_master_is_split_by_rounding_half_away_from_zero_and_joined_exactly) {
  const HalfFormat& format = test::kBf16;
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
      expect_same_bits(param, expected, floats, table);
      expect_same_bits(joined, masters, floats, table);
    }
  });
}

TEST(Remainder, arrays_of_any_length_and_place_are_split_and_joined_and_nothing_beside_them) {
  const KernelTable& scalar = kernel_table(Isa::scalar);
  Random random(6);
  for_many_arrays([&](const KernelTable& table, size_t count, size_t shift) {
    Elements masters(random, DType::f32, count, shift, Kind::any_exponent), joined = masters;
    Elements param(random, DType::bf16, count, count % 7, Kind::ordinary), remainder = param;
    Elements expected_param = param, expected_remainder = param;
    scalar.split_remainder(expected_param.as<uint16_t>(), expected_remainder.as<uint16_t>(),
                           masters.as<float>(), count);
    table.split_remainder(param.as<uint16_t>(), remainder.as<uint16_t>(), masters.as<float>(),
                          count);
    ASSERT_TRUE(param.equals(expected_param) && remainder.equals(expected_remainder));
    std::fill_n(joined.as<float>(), count, 77.0f);
    table.join_remainder(joined.as<float>(), param.as<uint16_t>(), remainder.as<uint16_t>(), count);
    ASSERT_TRUE(joined.equals(masters)) << table.name;
  });
}

}  // namespace
}  // namespace zero
