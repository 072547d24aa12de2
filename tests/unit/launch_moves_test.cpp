// SPDX-License-Identifier: Apache-2.0
// launch::Moves against conversions of whole arrays on the host.
#include <string>
#include <tuple>

#include "base/text.h"
#include "kernels/clamp.h"
#include "launch_cases.h"
#include "support/emulated_launches.h"

namespace zero {
namespace {

using test::Elements;
using test::first_of;
using test::Kind;
using test::Place;
using test::Random;

const std::vector<size_t> kCounts = {0, 1, 6, 8, 4095, 4096, 4099, 8193};

/// Converts through fp32, except from fp64 to fp64.
void move_on_host(const Elements& from, Elements& to, DType rounded, float divisor) {
  const KernelTable& kernels = kernel_table(Isa::scalar);
  const size_t count = from.count();
  if (from.type() == to.type() && rounded == DType::none && divisor == 1) {
    std::memcpy(to.data(), from.data(), count * size_of(from.type()));
    return;
  }
  std::vector<float> values(count);
  const void* const in = from.data();
  kernels.reduction(DType::f32, from.type(), Norm::none)(values.data(), &in, 1, count);
  scale(values.data(), values.data(), count, 1 / divisor);
  if (rounded != DType::none) kernels.half(rounded).round(values.data(), values.data(), count);
  if (size_of(to.type()) == 2) {
    kernels.half(to.type()).narrow(to.as<uint16_t>(), values.data(), count);
  } else if (to.type() == DType::f64) {
    std::copy(values.begin(), values.end(), to.as<double>());
  } else {
    std::copy(values.begin(), values.end(), to.as<float>());
  }
}

struct Pair {
  Elements from, to;
};

struct Way {
  DType rounded = DType::none;
  float divisor = 1;
  const StepState* state = nullptr;
  bool zeros = false;
  Place place = Place::near;
};

void move(std::vector<Pair>& pairs, const Way& way) {
  std::vector<launch::Move> moves;
  std::vector<size_t> counts;
  for (Pair& pair : pairs) {
    counts.push_back(pair.from.count());
    moves.push_back({way.zeros ? nullptr : first_of(pair.from, way.place),
                     first_of(pair.to, way.place),
                     test::count_before(way.place) + static_cast<int64_t>(pair.from.count())});
  }
  const std::vector<launch::Tile> tiles =
      way.place == Place::near ? test::tiles_of(counts) : std::vector{test::kFarTile};
  test::emulate(launch::Moves{.from = pairs[0].from.type(),
                              .to = pairs[0].to.type(),
                              .rounded = way.rounded,
                              .divisor = way.divisor,
                              .count = static_cast<uint32_t>(tiles.size()),
                              .tiles = tiles.data(),
                              .moves = moves.data(),
                              .unless_skipped = way.state});
}

std::vector<Pair> make_pairs(Random& random, DType from, DType to, Kind kind,
                             const std::vector<size_t>& counts) {
  std::vector<Pair> pairs;
  for (const size_t count : counts) {
    const bool aligned = random() % 2 == 0;
    pairs.push_back({Elements(random, from, count, aligned ? 0 : random() % 9, kind),
                     Elements(random, to, count, aligned ? 0 : random() % 9, kind)});
  }
  return pairs;
}

/// The source and target types.
class LaunchMovesOf : public ::testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  void expect_moves(const std::vector<size_t>& counts, Kind kind, const Way& way) {
    const auto [from, to] = GetParam();
    SCOPED_TRACE(text("by way of ", dtype_name(way.rounded), ", divided by ", way.divisor));
    std::vector<Pair> pairs = make_pairs(random_, from, to, kind, counts);
    std::vector<Pair> host = pairs;
    for (Pair& pair : host) {
      move_on_host(pair.from, pair.to, way.rounded, way.divisor);
      if (way.zeros) std::memset(pair.to.data(), 0, pair.to.count() * size_of(to));
    }
    move(pairs, way);
    for (size_t i = 0; i < pairs.size(); i++)
      EXPECT_TRUE(pairs[i].to.equals(host[i].to)) << "move " << i;
  }
  Random random_{51};
};

std::string name_of(const ::testing::TestParamInfo<LaunchMovesOf::ParamType>& made) {
  return text(dtype_name(std::get<0>(made.param)), "_to_", dtype_name(std::get<1>(made.param)));
}
INSTANTIATE_TEST_SUITE_P(, LaunchMovesOf,
                         ::testing::Combine(::testing::ValuesIn(test::kFloats),
                                            ::testing::ValuesIn(test::kFloats)),
                         name_of);

TEST_P(LaunchMovesOf, convert_as_the_host_does_also_behind_2_to_the_31_elements) {
  for (const DType rounded : {DType::none, DType::bf16, DType::f16}) {
    for (const float divisor : {1.0f, 4.0f}) {
      for (const Kind kind : test::kKinds)
        expect_moves(kCounts, kind, {.rounded = rounded, .divisor = divisor});
    }
  }
  expect_moves({5}, Kind::ordinary, {.place = Place::far});
}

TEST_P(LaunchMovesOf, from_nowhere_come_zeros) {
  expect_moves(kCounts, Kind::special, {.zeros = true});
}

TEST(LaunchMoves, copies_keep_the_bits_of_nans) {
  const uint32_t from[2] = {0x7F812345, 0xFFC00001};
  uint32_t to[2] = {};
  const launch::Tile tile{0, 0};
  const launch::Move one{reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to),
                         2};
  test::emulate(launch::Moves{.count = 1, .tiles = &tile, .moves = &one});
  EXPECT_EQ(to[0], from[0]);
  EXPECT_EQ(to[1], from[1]);
}

TEST(LaunchMoves, nothing_moves_in_a_step_that_is_not_made) {
  Random random(53);
  StepState state{};
  std::vector<Pair> pairs = make_pairs(random, DType::f32, DType::bf16, Kind::ordinary, kCounts);
  const std::vector<Pair> before = pairs;
  for (const bool skips : {true, false}) {
    state.skip = skips;
    state.refusal = skips ? Refusal::none : Refusal::nonfinite;
    move(pairs, {.state = &state});
    for (size_t i = 0; i < pairs.size(); i++) EXPECT_TRUE(pairs[i].to.equals(before[i].to));
  }
  state = {};
  move(pairs, {.state = &state});
  EXPECT_FALSE(pairs.back().to.equals(before.back().to));
}

}  // namespace
}  // namespace zero
