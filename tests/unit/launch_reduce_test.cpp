// SPDX-License-Identifier: Apache-2.0
// launch::Reduce and launch::Clamp against the host's own reductions: sums bit for bit, and norms
// and counts by their values.
#include <span>
#include <string>
#include <vector>

#include "kernels/clamp.h"
#include "launch_cases.h"
#include "step/norm.h"
#include "support/emulated_launches.h"

namespace zero {
namespace {

using launch::Format;
using test::Elements;
using test::Kind;
using test::Random;

struct Segment {
  Elements sums;
  std::vector<Elements> sources;
  std::vector<bool> present;
  bool in_place;  // source 0 stands where sums do
};

constexpr size_t kBlock = 1024;  // elements of a block of the norms' grid
constexpr size_t kFew[] = {0, 1, 5, 8, 63, 1023, 1024, 1025, 2500};

/// More pieces than all blocks take at once.
std::vector<size_t> many_counts() {
  std::vector<size_t> counts;
  for (size_t i = 0; i < 500; i++) counts.push_back(1 + i % 37);
  return counts;
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
                                   std::span<const size_t> counts = kFew) {
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

/// Parts of a segment as they are cut by a grid that does not begin where it does.
std::vector<launch::Piece> pieces_of(const std::vector<Segment>& segments) {
  std::vector<launch::Piece> pieces;
  for (size_t i = 0; i < segments.size(); i++) {
    const size_t count = segments[i].sums.count();
    size_t end = i % 2 == 0 ? kBlock : 1 + i * 100;
    for (size_t first = 0; first < count; first = end, end += kBlock) {
      const size_t part = std::min(end, count) - first;
      pieces.push_back(
          {static_cast<uint32_t>(i), static_cast<uint32_t>(part), static_cast<int64_t>(first)});
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
  for (const launch::Piece& piece : pieces_of(segments)) {
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

NormSums reduce_by_launches(const Case& of, std::vector<Segment>& segments) {
  std::vector<launch::Sums> sums;
  std::vector<const std::byte*> sources;
  for (size_t i = 0; i < segments.size(); i++) {
    sums.push_back({segments[i].sums.data(), static_cast<uint32_t>(i), 0});
    for (size_t k = 0; k < of.width; k++) sources.push_back(source_of(segments[i], k));
  }
  const std::vector<launch::Piece> pieces = pieces_of(segments);
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

void check(Random& random, const Case& of, std::span<const size_t> counts = kFew) {
  std::vector<Segment> device = make_segments(random, of, counts);
  std::vector<Segment> host = device;
  const NormSums expected = reduce_on_host(of, host);
  const NormSums record = reduce_by_launches(of, device);
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

/// One source, what a thread asks for together, and more.
constexpr uint32_t kWidths[] = {1, 2, 5, 9};

TEST(LaunchReduce, sums_and_measures_as_the_host_does) {
  Random random(11);
  const DType any[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
  for (const DType sum : {DType::f32, DType::f64}) {
    for (const DType grad : any) {
      for (const NormOf& norm : kNorms) {
        for (uint32_t turn = 0; turn < 12; turn++) {
          Case of{Format(),      norm.norm,         norm.p,
                  turn / 4 == 2, kWidths[turn % 4], test::kKinds[turn % 3]};
          of.format.sum = sum;
          of.format.grad = grad;
          SCOPED_TRACE(std::string(dtype_name(grad)) + " to " + dtype_name(sum) + ", norm " +
                       std::to_string(norm.p) + ", turn " + std::to_string(turn));
          check(random, of);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(LaunchReduce, rounds_and_divides_what_it_sums) {
  Random random(12);
  for (const DType grad : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType rounded : {DType::bf16, DType::f16}) {
      for (uint32_t turn = 0; turn < 24; turn++) {
        Case of{Format(),      Norm::squares,         2,
                turn % 2 == 1, kWidths[turn / 2 % 4], test::kKinds[turn % 3]};
        of.format.grad = grad;
        of.format.rounded = rounded;
        of.format.divisor = turn % 5 == 0 ? 1 : 16;
        check(random, of);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LaunchReduce, adds_up_what_many_blocks_have_found) {
  Random random(15);
  const std::vector<size_t> counts = many_counts();
  for (const DType sum : {DType::f32, DType::f64}) {
    for (const NormOf& norm : kNorms) {
      for (const uint32_t width : {1u, 2u}) {
        Case of{Format(), norm.norm, norm.p, false, width, test::kKinds[width]};
        of.format.sum = of.format.grad = sum;
        check(random, of, counts);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LaunchReduce, goes_on_behind_2_to_the_31_elements) {
  Random random(14);
  for (const DType grad : {DType::f32, DType::bf16}) {
    Elements source(random, grad, 300, 0, Kind::ordinary);
    Elements sums(random, DType::f32, 300, 0, Kind::ordinary), expected = sums;
    const void* const in = source.data();
    kernel_table(Isa::scalar).reduction(DType::f32, grad, Norm::none)(expected.data(), &in, 1, 300);
    const launch::Piece piece{0, 300, test::kFar};
    const launch::Sums out{test::before(sums.data(), DType::f32), 0, 0};
    const std::byte* const far = test::before(source.data(), grad);
    NormSums record{};
    test::emulate(launch::Reduce{.format = {.grad = grad},
                                 .count = 1,
                                 .pieces = &piece,
                                 .sums = &out,
                                 .sources = &far,
                                 .record = &record});
    EXPECT_TRUE(sums.equals(expected)) << dtype_name(grad);
  }
}

TEST(LaunchReduce, multiplies_sums_of_what_was_divided_before) {
  float sums[3], more[3] = {1, 2, 3};
  const float from[3] = {0.5f, -2, 3e-45f};
  const launch::Piece piece{0, 3, 0};
  const launch::Sums out{reinterpret_cast<std::byte*>(sums), 0, 0};
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(from),
                                      reinterpret_cast<const std::byte*>(more)};
  NormSums record{};
  Format format;
  format.divisor = 4;
  const launch::Reduce reduce{.format = format,
                              .width = 2,
                              .count = 1,
                              .pieces = &piece,
                              .sums = &out,
                              .sources = sources,
                              .record = &record};
  test::emulate(reduce);
  EXPECT_EQ(sums[0], 6);
  EXPECT_EQ(sums[1], 0);
  EXPECT_EQ(sums[2], 12);

  const std::byte* const in_place[] = {out.out};
  test::emulate(launch::Reduce{.format = format,
                               .width = 1,
                               .count = 1,
                               .pieces = &piece,
                               .sums = &out,
                               .sources = in_place,
                               .record = &record});
  EXPECT_EQ(sums[0], 24);
}

void clamp_on_host(DType sum, Elements& sums) {
  if (sum == DType::f64) {
    clamp_scaled(sums.as<double>(), sums.count(), 0.3, 0.1);
  } else {
    clamp_scaled(sums.as<float>(), sums.count(), 0.3f, 0.1f);
  }
}

void clamp_by_a_launch(DType sum, const std::vector<launch::Piece>& pieces,
                       const std::vector<launch::Sums>& sums) {
  StepState state{};
  state.factor = 0.3;
  test::emulate(launch::Clamp{.sum = sum,
                              .limit = 0.1,
                              .count = static_cast<uint32_t>(pieces.size()),
                              .pieces = pieces.data(),
                              .sums = sums.data(),
                              .state = &state});
}

void check_clamp(Random& random, DType sum, Kind kind, std::span<const size_t> counts) {
  std::vector<Segment> device = make_segments(
      random, {Format{.grad = sum, .sum = sum}, Norm::none, 0, true, 1, kind}, counts);
  std::vector<Segment> host = device;
  std::vector<launch::Sums> sums;
  for (Segment& segment : device) sums.push_back({segment.sums.data(), 0, 0});
  for (Segment& segment : host) clamp_on_host(sum, segment.sums);
  clamp_by_a_launch(sum, pieces_of(device), sums);
  for (size_t i = 0; i < host.size(); i++)
    EXPECT_TRUE(device[i].sums.equals(host[i].sums)) << "segment " << i;
}

TEST(LaunchClamp, scales_and_limits_as_the_host_does) {
  Random random(13);
  for (const DType sum : {DType::f32, DType::f64})
    for (const Kind kind : test::kKinds) check_clamp(random, sum, kind, kFew);
}

TEST(LaunchClamp, reaches_pieces_that_blocks_come_to_later) {
  Random random(16);
  for (const DType sum : {DType::f32, DType::f64})
    check_clamp(random, sum, Kind::ordinary, many_counts());
}

TEST(LaunchClamp, goes_on_behind_2_to_the_31_elements) {
  Random random(17);
  for (const DType sum : {DType::f32, DType::f64}) {
    Elements device(random, sum, 300, 0, Kind::ordinary), host = device;
    clamp_on_host(sum, host);
    clamp_by_a_launch(sum, {{0, 300, test::kFar}}, {{test::before(device.data(), sum), 0, 0}});
    EXPECT_TRUE(device.equals(host)) << dtype_name(sum);
  }
}

}  // namespace
}  // namespace zero
