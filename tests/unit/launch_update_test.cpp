// SPDX-License-Identifier: Apache-2.0
// launch::Update against the host's sums, kernels and master weights, bitwise. The threads of a
// device run here one after the other.
#include <string>

#include "base/text.h"
#include "kernels/clamp.h"
#include "kernels/stochastic.h"
#include "launch_cases.h"
#include "optim/optimizer.h"
#include "rules/list.h"
#include "step/norm.h"
#include "support/emulated_launches.h"
#include "zero.h"

namespace zero {
namespace {

using launch::Format;
using test::Elements;
using test::first_of;
using test::Kind;
using test::Place;
using test::Random;

const KernelTable& scalar_kernels() { return kernel_table(Isa::scalar); }

/// The arrays of a run's elements.
struct Arrays {
  Elements param;
  std::vector<Elements> kept;  // one or none
  std::vector<Elements> slots, sources, targets;
  std::vector<bool> present;  // which sources exist
};

struct Case {
  Format format;
  int32_t optimizer;
  uint32_t width;
  uint32_t targets;
  Kind kind;
  bool reduced;
};

bool is_half(const Format& format) { return format.slots == SlotFormat::bf16; }

/// The position of a run in the random bits. Its lower half overflows in the run.
constexpr int64_t kRandomAt = (int64_t{1} << 32) - 16;

Arrays make_arrays(Random& random, const Case& of, size_t count, size_t shift) {
  const Format& format = of.format;
  const Rule& rule = *find_rule(of.optimizer);
  Arrays arrays{Elements(random, format.param, count, shift, of.kind), {}, {}, {}, {}, {}};
  if (format.master == Master::full)
    arrays.kept.emplace_back(random, DType::f32, count, shift, of.kind);
  if (format.master == Master::remainder) {
    arrays.kept.emplace_back(random, DType::bf16, count, shift, of.kind);
    for (size_t i = 0; i < count; i++)
      arrays.kept[0].as<uint16_t>()[i] = static_cast<uint16_t>(random());
  }
  for (size_t slot = 0; slot < rule.slots.size(); slot++)
    arrays.slots.emplace_back(random, is_half(format) ? DType::bf16 : format.sum, count, shift,
                              of.kind, slot > 0);
  for (uint32_t i = 0; i < of.width; i++) {
    arrays.sources.emplace_back(random, of.reduced ? format.sum : format.grad, count, shift,
                                of.kind);
    arrays.present.push_back(random() % 4 != 0);
  }
  for (uint32_t i = 0; i < of.targets; i++)
    arrays.targets.emplace_back(random, format.param, count, shift, of.kind);
  return arrays;
}

// ---- On the host

template <class Real>
std::vector<Real> sums_of(const Case& of, Arrays& arrays) {
  const size_t count = arrays.param.count();
  const std::vector<double> zeros(count);
  std::vector<const void*> in;
  for (size_t i = 0; i < arrays.sources.size(); i++)
    in.push_back(arrays.present[i] ? static_cast<const void*>(arrays.sources[i].data())
                                   : zeros.data());
  std::vector<Real> sums(count);
  const Format& format = of.format;
  if (of.reduced || format.rounded == DType::none) {
    scalar_kernels().reduction(format.sum, of.reduced ? format.sum : format.grad, Norm::none)(
        sums.data(), in.data(), static_cast<int>(in.size()), count);
    if (format.divisor != 1)
      scale(sums.data(), sums.data(), count, static_cast<Real>(format.divisor));
  } else if constexpr (sizeof(Real) == sizeof(float)) {
    std::vector<float> scratch(count);
    reduce_rounded(scalar_kernels(), {format.rounded, format.divisor}, format.grad, Norm::none,
                   sums.data(), in, count, scratch.data());
  }
  return sums;
}

template <class Real>
uint64_t update_on_host(const Case& of, Arrays& arrays, const Scalars& scalars) {
  const Format& format = of.format;
  const size_t count = arrays.param.count();
  std::vector<Real> sums = sums_of<Real>(of, arrays);
  std::vector<float> room(count);
  void* master = arrays.param.data();
  auto* const halves = arrays.param.as<uint16_t>();
  if (format.master == Master::full) {
    master = arrays.kept[0].data();
  } else if (format.master == Master::remainder) {
    scalar_kernels().join_remainder(room.data(), halves, arrays.kept[0].as<uint16_t>(), count);
    master = room.data();
  } else if (format.master == Master::rounded) {
    read_values(format.param, room.data(), arrays.param.data(), count);
    master = room.data();
  }
  UpdateRunOf<Real> run{};
  run.param = static_cast<Real*>(master);
  run.grad = sums.data();
  run.count = count;
  std::vector<float> slots[kMaxSlots];
  for (size_t slot = 0; slot < arrays.slots.size(); slot++) {
    run.slots[slot] = arrays.slots[slot].as<Real>();
    if (!is_half(format)) continue;
    slots[slot].resize(count);
    scalar_kernels().bf16.widen(slots[slot].data(), arrays.slots[slot].as<uint16_t>(), count);
    run.slots[slot] = reinterpret_cast<Real*>(slots[slot].data());
  }
  const uint64_t found = scalar_kernels().in<Real>().update[of.optimizer](run, scalars);
  for (size_t slot = 0; slot < arrays.slots.size() && is_half(format); slot++) {
    for (size_t i = 0; i < count; i++)
      arrays.slots[slot].as<uint16_t>()[i] = rounded_at_random(
          slots[slot][i], key_of_slot(rounding_key(scalars.step), static_cast<int>(slot)),
          static_cast<uint32_t>(kRandomAt + static_cast<int64_t>(i)));
  }
  if (format.master == Master::remainder) {
    scalar_kernels().split_remainder(halves, arrays.kept[0].as<uint16_t>(), room.data(), count);
  } else if (format.master != Master::param) {
    OptimizerOptions options;
    options.share_dtype = static_cast<int32_t>(format.share);
    write_values(format.param, options, arrays.param.data(), static_cast<const float*>(master),
                 count);
  }
  for (Elements& target : arrays.targets)
    std::memcpy(target.data(), arrays.param.data(), count * size_of(format.param));
  return found;
}

// ---- On devices

uint64_t update_by_launch(const Case& of, std::vector<Arrays>& all,
                          const std::vector<Scalars>& scalars, const StepState& state,
                          Place place = Place::near) {
  std::vector<launch::RunRow> runs;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> targets;
  std::vector<size_t> counts;
  for (size_t i = 0; i < all.size(); i++) {
    Arrays& arrays = all[i];
    launch::RunRow run{};
    run.param = first_of(arrays.param, place);
    run.kept = arrays.kept.empty() ? nullptr : first_of(arrays.kept[0], place);
    for (size_t slot = 0; slot < arrays.slots.size(); slot++)
      run.slots[slot] = first_of(arrays.slots[slot], place);
    run.count = test::count_before(place) + static_cast<int64_t>(arrays.param.count());
    run.random_at = kRandomAt - test::count_before(place);
    run.pointers = static_cast<uint32_t>(i);
    run.cls = static_cast<int32_t>(i);
    runs.push_back(run);
    counts.push_back(arrays.param.count());
    for (size_t k = 0; k < arrays.sources.size(); k++)
      sources.push_back(arrays.present[k] ? first_of(arrays.sources[k], place) : nullptr);
    for (Elements& target : arrays.targets) targets.push_back(first_of(target, place));
    targets.push_back(nullptr);
  }
  const std::vector<launch::Tile> tiles =
      place == Place::near ? test::tiles_of(counts) : std::vector{test::kFarTile};
  uint64_t found = 0;
  test::emulate(launch::Update{.format = of.format,
                               .optimizer = of.optimizer,
                               .reduced = of.reduced,
                               .width = of.width,
                               .targets_width = of.targets + 1,
                               .count = static_cast<uint32_t>(tiles.size()),
                               .tiles = tiles.data(),
                               .runs = runs.data(),
                               .sources = sources.data(),
                               .targets = targets.data(),
                               .scalars = scalars.data(),
                               .state = &state,
                               .nonfinite = &found});
  return found;
}

void expect_same(const std::vector<Elements>& a, const std::vector<Elements>& b, const char* what) {
  for (size_t i = 0; i < a.size(); i++) EXPECT_TRUE(a[i].equals(b[i])) << what << " " << i;
}

void expect_same(const Arrays& device, const Arrays& host) {
  EXPECT_TRUE(device.param.equals(host.param)) << "parameters";
  expect_same(device.kept, host.kept, "kept");
  expect_same(device.slots, host.slots, "slot");
  expect_same(device.sources, host.sources, "source");
  expect_same(device.targets, host.targets, "target");
}

/// Counts around a group, a block's turn and a tile. Some arrays begin at unaligned addresses.
constexpr size_t kCounts[] = {0, 1, 7, 8, 9, 300, 4095, 4096, 4096 + 13};

void check(Random& random, const Case& of) {
  const Rule& rule = *find_rule(of.optimizer);
  std::vector<Arrays> device;
  std::vector<std::vector<double>> settings;
  for (size_t i = 0; i < std::size(kCounts); i++) {
    device.push_back(
        make_arrays(random, of, kCounts[i], (random() + i) % 2 == 0 ? 0 : random() % 9));
    settings.push_back(test::random_settings(random, rule));
  }
  std::vector<Arrays> host = device;
  const StepState state{};
  for (int64_t step = 1; step <= 3; step++) {
    std::vector<Scalars> scalars;
    for (const std::vector<double>& setting : settings) {
      scalars.push_back(rule.prepare({.settings = setting.data(),
                                      .step = step,
                                      .live_slots = step == 1 ? 0u : 0b111u,
                                      .factor = 0.25,
                                      .product = 0.5}));
    }
    uint64_t expected = 0;
    for (size_t i = 0; i < host.size(); i++) {
      expected += of.format.sum == DType::f64 ? update_on_host<double>(of, host[i], scalars[i])
                                              : update_on_host<float>(of, host[i], scalars[i]);
    }
    EXPECT_EQ(update_by_launch(of, device, scalars, state), expected);
    for (size_t i = 0; i < host.size(); i++) {
      SCOPED_TRACE("run " + std::to_string(i) + ", step " + std::to_string(step));
      expect_same(device[i], host[i]);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

std::vector<Format> all_formats() {
  std::vector<Format> formats;
  const auto add = [&](DType param, Master kept, DType share = DType::none) {
    for (const SlotFormat slots : {SlotFormat::full, SlotFormat::bf16}) {
      for (const DType grad : test::kFloats) {
        const bool rounds = slots != SlotFormat::full;  // the same for every type of gradients
        if (rounds && (param == DType::f64 || grad != DType::f32)) continue;
        formats.push_back({.param = param,
                           .grad = grad,
                           .sum = param == DType::f64 ? DType::f64 : DType::f32,
                           .share = share,
                           .master = kept,
                           .slots = slots});
      }
    }
  };
  add(DType::f32, Master::param);
  add(DType::f64, Master::param);
  add(DType::bf16, Master::full);
  add(DType::bf16, Master::remainder);
  add(DType::bf16, Master::rounded);
  add(DType::f16, Master::full);
  add(DType::f16, Master::rounded);
  add(DType::f32, Master::full, DType::bf16);
  add(DType::f32, Master::rounded, DType::f16);
  return formats;
}

class LaunchUpdate : public ::testing::TestWithParam<int32_t> {};

TEST_P(LaunchUpdate, gives_the_bits_of_the_host_in_every_format) {
  Random random(static_cast<uint64_t>(7 + GetParam()));
  for (const Format& format : all_formats()) {
    Case of{format,
            GetParam(),
            static_cast<uint32_t>(1 + random() % 9),
            static_cast<uint32_t>(random() % 3),
            test::kKinds[random() % 3],
            false};
    if (format.sum == DType::f32) {
      const DType rounded[] = {DType::none, DType::bf16, DType::f16};
      of.format.rounded = rounded[random() % 3];
      of.format.divisor = random() % 2 == 0 ? 1 : 8;
    }
    SCOPED_TRACE(text("parameters of ", dtype_name(format.param), ", gradients of ",
                      dtype_name(format.grad), ", kept ", static_cast<int>(format.master),
                      ", rounded to ", dtype_name(of.format.rounded), ", width ", of.width,
                      ", kind ", static_cast<int>(of.kind),
                      is_half(format) ? ", slots of bf16" : ""));
    check(random, of);
    if (HasFailure()) return;
  }
}

TEST_P(LaunchUpdate, does_not_round_what_is_reduced) {
  Random random(static_cast<uint64_t>(70 + GetParam()));
  for (Format format : all_formats()) {
    format.rounded = format.sum == DType::f32 ? DType::f16 : DType::none;
    format.divisor = format.sum == DType::f32 && random() % 2 == 0 ? 4 : 1;
    check(random, {format, GetParam(), 1, 1, test::kKinds[random() % 3], true});
    if (HasFailure()) return;
  }
}

std::vector<int32_t> rules_with_updates() {
  std::vector<int32_t> all;
  for (int32_t i = 0; i < kRuleCount; i++) {
    if (i != ZERO_OPTIMIZER_LAMB) all.push_back(i);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(, LaunchUpdate, ::testing::ValuesIn(rules_with_updates()),
                         [](const auto& rule) { return find_rule(rule.param)->name; });

TEST(LaunchUpdateOf, elements_behind_2_to_the_31_are_updated) {
  Random random(5);
  const Case of{{.param = DType::bf16, .grad = DType::bf16, .master = Master::full},
                ZERO_OPTIMIZER_ADAMW,
                2,
                1,
                Kind::ordinary,
                false};
  const Rule& rule = *find_rule(of.optimizer);
  const std::vector<double> settings = test::random_settings(random, rule);
  const Scalars scalars =
      rule.prepare({.settings = settings.data(), .step = 1, .live_slots = 0, .factor = 1});
  std::vector<Arrays> device = {make_arrays(random, of, 13, 0)}, host = device;
  update_on_host<float>(of, host[0], scalars);
  update_by_launch(of, device, {scalars}, StepState(), Place::far);
  expect_same(device[0], host[0]);
}

TEST(LaunchUpdateOf, a_step_that_is_skipped_or_refused_changes_nothing) {
  Random random(3);
  const Case of{Format(), ZERO_OPTIMIZER_ADAMW, 1, 1, Kind::special, false};
  for (const bool refused : {false, true}) {
    std::vector<Arrays> arrays = {make_arrays(random, of, 500, 0)};
    const std::vector<Arrays> before = arrays;
    StepState state{};
    state.skip = !refused;
    if (refused) state.refusal = Refusal::outdated;
    EXPECT_EQ(update_by_launch(of, arrays, {Scalars()}, state), 0u);
    expect_same(arrays[0], before[0]);
  }
}

}  // namespace
}  // namespace zero
