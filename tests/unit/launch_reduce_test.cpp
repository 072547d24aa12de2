// SPDX-License-Identifier: Apache-2.0
// launch::Reduce and launch::Clamp against the host's reductions: sums are bitwise equal, norms and
// counts have equal values.
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "kernels/clamp.h"
#include "launch_cases.h"
#include "step/norm.h"
#include "support/emulated_launches.h"
#include "support/pairwise.h"

namespace zero {
namespace {

using launch::Format;
using test::Elements;
using test::first_of;
using test::Kind;
using test::Place;
using test::Random;

struct Segment {
  Elements sums;
  std::vector<Elements> sources;
  std::vector<bool> present;
  bool in_place;  // source 0 is stored where sums are
};

constexpr size_t kBlock = 1024;  // elements in a block of the grid of norms

struct Lengths {
  std::vector<size_t> counts;
  Place place = Place::near;
};

/// Segments of critical lengths, more pieces than all blocks take at once, and a far segment.
const std::vector<Lengths>& all_lengths() {
  static const std::vector<Lengths> all = [] {
    std::vector<size_t> many;
    for (size_t i = 0; i < 500; i++) many.push_back(1 + i % 37);
    return std::vector<Lengths>{
        {{0, 1, 5, 8, 63, 1023, 1024, 1025, 2500}}, {many}, {{300}, Place::far}};
  }();
  return all;
}

struct Case {
  Format format;
  Norm norm;
  double p;
  bool adds;
  uint32_t width;
  Kind kind;
};

std::vector<Segment> make_segments(Random& random, const Case& of,
                                   const std::vector<size_t>& counts) {
  std::vector<Segment> segments;
  for (const size_t count : counts) {
    const size_t shift = random() % 3;
    Segment segment{Elements(random, of.format.sum, count, shift, of.kind), {}, {}, false};
    for (uint32_t i = 0; i < of.width; i++) {
      segment.sources.emplace_back(random, of.format.grad, count, random() % 3, of.kind);
      segment.present.push_back(random() % 4 != 0);
    }
    segment.in_place = !of.adds && of.format.grad == of.format.sum && random() % 2 == 0;
    segments.push_back(std::move(segment));
  }
  return segments;
}

/// Returns parts of segments, cut by a grid that does not begin where they do.
std::vector<launch::PieceRow> pieces_of(const std::vector<Segment>& segments,
                                        Place place = Place::near) {
  std::vector<launch::PieceRow> pieces;
  for (size_t i = 0; i < segments.size(); i++) {
    const size_t count = segments[i].sums.count();
    size_t end = i % 2 == 0 ? kBlock : 1 + i * 100;
    for (size_t first = 0; first < count; first = end, end += kBlock) {
      const size_t part = std::min(end, count) - first;
      pieces.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(part),
                        test::count_before(place) + static_cast<int64_t>(first)});
    }
  }
  return pieces;
}

const std::byte* source_of(const Segment& segment, size_t i) {
  if (i == 0 && segment.in_place) return segment.sums.data();
  return segment.present[i] ? segment.sources[i].data() : nullptr;
}

NormSums reduce_on_host(const Case& of, std::vector<Segment>& segments) {
  Reducer parts(kernel_table(Isa::scalar), 0);
  Reducer reducer(kernel_table(Isa::scalar), of.p);
  const std::vector<double> zeros(kBlock);
  const Format& format = of.format;
  for (const launch::PieceRow& piece : pieces_of(segments)) {
    Segment& segment = segments[piece.of];
    std::vector<const void*> in;
    for (size_t i = 0; i < of.width; i++) {
      const std::byte* const source = source_of(segment, i);
      in.push_back(source == nullptr
                       ? static_cast<const void*>(zeros.data())
                       : source + piece.first * static_cast<int64_t>(size_of(format.grad)));
    }
    std::byte* const out =
        segment.sums.data() + piece.first * static_cast<int64_t>(size_of(format.sum));
    const Rounding rounding{format.rounded, format.divisor};
    if (of.adds) {
      for (size_t i = 0; i < in.size(); i++) {
        double fresh[kBlock];
        parts.reduce(format.sum, format.grad, fresh, {&in[i], 1}, piece.count, rounding);
        const void* const both[] = {out, fresh};
        Reducer& last = i + 1 < in.size() ? parts : reducer;
        last.reduce(format.sum, format.sum, out, both, piece.count);
      }
    } else {
      reducer.reduce(format.sum, format.grad, out, in, piece.count, rounding);
    }
  }
  return reducer.record();
}

NormSums reduce_by_launches(const Case& of, std::vector<Segment>& segments, Place place) {
  std::vector<launch::Sums> sums;
  std::vector<const std::byte*> sources;
  for (size_t i = 0; i < segments.size(); i++) {
    sums.push_back({first_of(segments[i].sums, place), static_cast<uint32_t>(i), 0});
    for (size_t k = 0; k < of.width; k++)
      sources.push_back(first_of(source_of(segments[i], k), of.format.grad, place));
  }
  const std::vector<launch::PieceRow> pieces = pieces_of(segments, place);
  NormSums record{};
  const size_t half = pieces.size() / 2;  // a record takes any number of launches
  for (const auto& [first, count] :
       {std::pair(half, pieces.size() - half), std::pair(size_t{0}, half)}) {
    test::emulate(launch::Reduce{.format = of.format,
                                 .norm = of.norm,
                                 .adds = of.adds,
                                 .width = of.width,
                                 .count = static_cast<uint32_t>(count),
                                 .pieces = pieces.data() + first,
                                 .sums = sums.data(),
                                 .sources = sources.data(),
                                 .record = &record});
  }
  return record;
}

void expect_same(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return;
  EXPECT_EQ(std::bit_cast<uint64_t>(a), std::bit_cast<uint64_t>(b)) << a << " and " << b;
}

void check(Random& random, const Case& of, const Lengths& lengths) {
  std::vector<Segment> device = make_segments(random, of, lengths.counts);
  std::vector<Segment> host = device;
  const NormSums expected = reduce_on_host(of, host);
  const NormSums record = reduce_by_launches(of, device, lengths.place);
  for (size_t i = 0; i < host.size(); i++)
    EXPECT_TRUE(device[i].sums.equals(host[i].sums)) << "segment " << i;
  EXPECT_EQ(record.nonfinite, expected.nonfinite);
  expect_same(record.max, expected.max);
  expect_same(record.sum.value(), expected.sum.value());
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct NormOf {
  Norm norm;
  double p;
};
constexpr NormOf kNorms[] = {
    {Norm::none, 0}, {Norm::abs, 1}, {Norm::squares, 2}, {Norm::largest, kInfinity}};

/// Type of the sums, type of the gradients, and index in kNorms.
class LaunchReduce : public ::testing::TestWithParam<std::tuple<DType, DType, size_t>> {};

std::string name_of(const ::testing::TestParamInfo<LaunchReduce::ParamType>& made) {
  const auto [sum, grad, norm] = made.param;
  return text(dtype_name(grad), "_to_", dtype_name(sum), "_norm_", norm);
}
INSTANTIATE_TEST_SUITE_P(, LaunchReduce,
                         ::testing::Combine(::testing::Values(DType::f32, DType::f64),
                                            ::testing::ValuesIn(test::kFloats),
                                            ::testing::Range(size_t{0}, std::size(kNorms))),
                         name_of);

TEST_P(LaunchReduce, sums_and_measures_as_the_host_does) {
  const auto [sum, grad, norm] = GetParam();
  // One source, as many as a thread loads together, and more.
  constexpr uint32_t kWidths[] = {1, 2, 5, 9};
  constexpr DType kRounded[] = {DType::none, DType::bf16, DType::f16};
  const bool rounds = sum == DType::f32 && grad != DType::f64;
  Random random(11);
  const auto pairs = test::all_pairs({2, 4, 4, 3, 2, 3}, [&](const test::Combination& one) {
    return one[3] == 0 ? one[4] == 0 : rounds;
  });
  for (const test::Combination& one : pairs) {
    const Case of{.format = {.grad = grad,
                             .sum = sum,
                             .rounded = kRounded[one[3]],
                             .divisor = one[4] == 0 ? 1.0f : 16.0f},
                  .norm = kNorms[norm].norm,
                  .p = kNorms[norm].p,
                  .adds = one[0] == 1,
                  .width = kWidths[one[1]],
                  .kind = test::kKinds[one[2]]};
    SCOPED_TRACE(::testing::PrintToString(one));
    check(random, of, all_lengths()[one[5]]);
    if (HasFailure()) return;
  }
}

TEST(LaunchReduceOf, multiplies_sums_of_what_was_divided_before) {
  float sums[3], more[3] = {1, 2, 3};
  const float from[3] = {0.5f, -2, 3e-45f};
  const launch::PieceRow piece{0, 3, 0};
  const launch::Sums out{reinterpret_cast<std::byte*>(sums), 0, 0};
  NormSums record{};
  const auto reduce = [&](const std::vector<const void*>& sources) {
    std::vector<const std::byte*> bytes;
    for (const void* source : sources) bytes.push_back(static_cast<const std::byte*>(source));
    test::emulate(launch::Reduce{.format = {.divisor = 4},
                                 .width = static_cast<uint32_t>(bytes.size()),
                                 .count = 1,
                                 .pieces = &piece,
                                 .sums = &out,
                                 .sources = bytes.data(),
                                 .record = &record});
    return std::vector<float>(sums, sums + 3);
  };
  EXPECT_EQ(reduce({from, more}), (std::vector<float>{6, 0, 12}));
  EXPECT_EQ(reduce({sums}), (std::vector<float>{24, 0, 48}));
}

void check_clamp(Random& random, DType sum, Kind kind, const Lengths& lengths) {
  std::vector<Segment> device = make_segments(
      random, {Format{.grad = sum, .sum = sum}, Norm::none, 0, true, 1, kind}, lengths.counts);
  std::vector<Segment> host = device;
  for (Segment& segment : host) {
    Elements& sums = segment.sums;
    if (sum == DType::f64) {
      clamp_scaled(sums.as<double>(), sums.count(), 0.3, 0.1);
    } else {
      clamp_scaled(sums.as<float>(), sums.count(), 0.3f, 0.1f);
    }
  }
  std::vector<launch::Sums> sums;
  for (Segment& segment : device) sums.push_back({first_of(segment.sums, lengths.place), 0, 0});
  const std::vector<launch::PieceRow> pieces = pieces_of(device, lengths.place);
  StepState state{};
  state.factor = 0.3;
  test::emulate(launch::Clamp{.sum = sum,
                              .limit = 0.1,
                              .count = static_cast<uint32_t>(pieces.size()),
                              .pieces = pieces.data(),
                              .sums = sums.data(),
                              .state = &state});
  for (size_t i = 0; i < host.size(); i++)
    EXPECT_TRUE(device[i].sums.equals(host[i].sums)) << "segment " << i;
}

TEST(LaunchClamp, scales_and_limits_as_the_host_does) {
  Random random(13);
  for (const DType sum : {DType::f32, DType::f64}) {
    for (const Kind kind : test::kKinds) {
      for (const Lengths& lengths : all_lengths()) check_clamp(random, sum, kind, lengths);
    }
  }
}

}  // namespace
}  // namespace zero
