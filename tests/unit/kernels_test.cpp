// SPDX-License-Identifier: Apache-2.0
// Every instruction set against the scalar table bit for bit, and the scalar table against plain
// loops that follow the words of kernels.h. NaNs are equal to each other whatever their payload.
#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/float_environment.h"
#include "rules/list.h"
#include "whole_step.h"
#include "zero.h"

namespace zero {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// What a caller may have set: flush to zero, denormals are zero, round toward zero. The kernels
/// run in a FloatEnvironment inside it.
class HostileCaller {
 public:
#if defined(__x86_64__)
  HostileCaller() : saved_(_mm_getcsr()) { _mm_setcsr(0xFFC0); }
  ~HostileCaller() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#endif
};

uint32_t bits(float value) {
  return std::isnan(value) ? 0x7FC00000 : std::bit_cast<uint32_t>(value);
}
uint64_t bits(double value) { return std::isnan(value) ? ~0ull : std::bit_cast<uint64_t>(value); }

/// 0 to 70 covers every remainder of every vector width; the rest crosses blocks.
std::vector<size_t> sizes() {
  std::vector<size_t> all;
  for (size_t count = 0; count <= 70; ++count) all.push_back(count);
  for (size_t count : {127, 128, 513, 1000, 1023, 1024, 1025, 2048, 4099}) all.push_back(count);
  return all;
}

enum class Kind { ordinary, any_exponent, denormal, special };

float random_float(std::mt19937_64& random, Kind kind) {
  const auto word = static_cast<uint32_t>(random());
  const uint32_t sign_and_mantissa = word & 0x807FFFFF;
  const auto exponent = static_cast<uint32_t>(random() >> 32);
  switch (kind) {
    case Kind::ordinary:
      return std::bit_cast<float>(sign_and_mantissa | (120 + exponent % 12) << 23);
    case Kind::any_exponent:
      return std::bit_cast<float>(sign_and_mantissa | exponent % 255 << 23);
    case Kind::denormal:
      return std::bit_cast<float>(sign_and_mantissa | exponent % 2 << 23);
    case Kind::special:
      break;
  }
  const float values[] = {0.0f, -0.0f, kInfinity, -kInfinity, kNan, 1e-45f, 3.4e38f, 1.0f};
  return exponent % 4 == 0 ? values[exponent / 4 % std::size(values)]
                           : random_float(random, Kind::ordinary);
}

/// An array that begins `offset` floats behind a 64-byte boundary, with a margin that must not
/// change.
class Array {
 public:
  Array(std::mt19937_64& random, size_t count, size_t offset, Kind kind, bool positive = false)
      : count_(count), first_(kMargin + offset), lines_((first_ + count + kMargin) / 16 + 1) {
    for (Line& line : lines_) {
      for (float& value : line.values) {
        value = random_float(random, kind);
        if (positive) value = std::fabs(value);
      }
    }
  }

  float* data() { return reinterpret_cast<float*>(lines_.data()) + first_; }
  const float* data() const { return reinterpret_cast<const float*>(lines_.data()) + first_; }
  size_t count() const { return count_; }

  /// Same elements and same margins.
  ::testing::AssertionResult equals(const Array& other) const {
    for (ptrdiff_t i = -kMargin; i < ptrdiff_t(count_) + kMargin; ++i) {
      const float a = data()[i], b = other.data()[i];
      if (bits(a) != bits(b)) {
        return ::testing::AssertionFailure()
               << "element " << i << " of " << count_ << ": " << std::hexfloat << a << " and " << b;
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr ptrdiff_t kMargin = 32;
  struct alignas(64) Line {
    float values[16];
  };
  size_t count_;
  size_t first_;
  std::vector<Line> lines_;
};

struct Case {
  size_t count;
  size_t offset;
  Kind kind;
};

template <class Body>
void for_each_case(Body body) {
  for (const Kind kind : {Kind::ordinary, Kind::any_exponent, Kind::denormal, Kind::special}) {
    for (const size_t count : sizes()) {
      for (const size_t offset : {0, 1, 5, 15}) {
        SCOPED_TRACE("count " + std::to_string(count) + ", offset " + std::to_string(offset) +
                     ", kind " + std::to_string(static_cast<int>(kind)));
        body(Case{count, offset, kind});
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

Reduction reduce(const KernelTable& table, Norm norm, float* out,
                 const std::vector<const float*>& in, size_t count) {
  const std::vector<const void*> inputs(in.begin(), in.end());
  return table.reduction(DType::f32, DType::f32, norm)(out, inputs.data(),
                                                       static_cast<int>(in.size()), count);
}

/// What `array` comes to; it is not written.
Reduction reduce(const KernelTable& table, Norm norm, Array& array) {
  return reduce(table, norm, array.data(), {array.data()}, array.count());
}

constexpr Norm kNorms[] = {Norm::none, Norm::abs, Norm::squares, Norm::largest};

class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  const KernelTable& table_ = kernel_table(GetParam());
  const KernelTable& scalar_ = kernel_table(Isa::scalar);
  std::mt19937_64 random_{7};
};

INSTANTIATE_TEST_SUITE_P(Isa, EveryIsa, ::testing::ValuesIn(available_isas()),
                         [](const auto& made) { return std::string(isa_name(made.param)); });

TEST(Isa, names_and_tables_belong_together_and_the_best_is_the_last) {
  const std::vector<Isa> isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::scalar);
  EXPECT_EQ(isas.back(), best_isa());
  for (const Isa isa : isas) EXPECT_STREQ(kernel_table(isa).name, isa_name(isa));
}

// ---- Sums over ranks

TEST_P(EveryIsa, sums_add_in_rank_order) {
  for_each_case([&](const Case& c) {
    const int ranks = 1 + static_cast<int>(random_() % 9);
    std::vector<Array> in;
    for (int rank = 0; rank < ranks; ++rank)
      in.emplace_back(random_, c.count, random_() % 16, c.kind);
    std::vector<const float*> pointers;
    for (const Array& array : in) pointers.push_back(array.data());

    Array expected(random_, c.count, c.offset, c.kind);
    Array out(expected);
    for (size_t i = 0; i < c.count; ++i) {
      volatile float sum = pointers[0][i];
      for (int rank = 1; rank < ranks; ++rank) sum = sum + pointers[rank][i];
      expected.data()[i] = sum;
    }
    const HostileCaller caller;
    const FloatEnvironment environment;
    for (const Norm norm : kNorms) {
      Array sums(out);
      reduce(table_, norm, sums.data(), pointers, c.count);
      ASSERT_TRUE(sums.equals(expected));
    }
  });
}

TEST_P(EveryIsa, sums_may_replace_any_of_their_inputs) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int place = 0; place < ranks; ++place) {
      for (const size_t count : {1u, 31u, 1024u, 2100u}) {
        std::vector<Array> in;
        for (int rank = 0; rank < ranks; ++rank)
          in.emplace_back(random_, count, 3, Kind::any_exponent);
        std::vector<const float*> pointers;
        for (const Array& array : in) pointers.push_back(array.data());
        Array expected(in[static_cast<size_t>(place)]);
        reduce(table_, Norm::none, expected.data(), pointers, count);
        float* out = in[static_cast<size_t>(place)].data();
        reduce(table_, Norm::squares, out, pointers, count);
        ASSERT_TRUE(in[static_cast<size_t>(place)].equals(expected))
            << "place " << place << " of " << ranks;
      }
    }
  }
}

// ---- Piece sums

template <class Term>
double in_eight_lanes(const Array& array, Term term) {
  double lane[8] = {};
  for (size_t i = 0; i < array.count(); ++i) lane[i % 8] += term(double{array.data()[i]});
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

TEST_P(EveryIsa, piece_sums_have_the_bits_of_eight_lanes) {
  for_each_case([&](const Case& c) {
    Array array(random_, c.count, c.offset, c.kind);
    const double expected_abs = in_eight_lanes(array, [](double x) { return std::fabs(x); });
    const double expected_squares = in_eight_lanes(array, [](double x) { return x * x; });
    const double expected_powers =
        in_eight_lanes(array, [](double x) { return std::pow(std::fabs(x), 3.5); });
    const HostileCaller caller;
    const FloatEnvironment environment;
    ASSERT_EQ(bits(reduce(table_, Norm::abs, array).norm), bits(expected_abs));
    ASSERT_EQ(bits(reduce(table_, Norm::squares, array).norm), bits(expected_squares));
    ASSERT_EQ(bits(table_.sum_powers(array.data(), c.count, 3.5)), bits(expected_powers));
  });
}

TEST_P(EveryIsa, the_largest_absolute_value_is_found_anywhere_and_nan_wins) {
  for_each_case([&](const Case& c) {
    Array array(random_, c.count, c.offset, c.kind);
    double expected = 0;
    bool nan = false;
    for (size_t i = 0; i < c.count; ++i) {
      const double value = std::fabs(array.data()[i]);
      nan |= std::isnan(value);
      if (value > expected) expected = value;
    }
    const HostileCaller caller;
    const FloatEnvironment environment;
    ASSERT_EQ(bits(reduce(table_, Norm::largest, array).norm), bits(nan ? double{kNan} : expected));
    if (c.count == 0) return;
    const size_t place = random_() % c.count;
    array.data()[place] = -kInfinity;
    if (!nan) {
      ASSERT_EQ(reduce(table_, Norm::largest, array).norm, double{kInfinity});
    }
    array.data()[(place * 7) % c.count] = -kNan;
    ASSERT_TRUE(std::isnan(reduce(table_, Norm::largest, array).norm));
  });
}

TEST_P(EveryIsa, every_infinity_and_nan_is_counted) {
  for_each_case([&](const Case& c) {
    Array array(random_, c.count, c.offset, c.kind);
    uint64_t expected = 0;
    for (size_t i = 0; i < c.count; ++i) expected += !std::isfinite(array.data()[i]);
    for (const Norm norm : kNorms) ASSERT_EQ(reduce(table_, norm, array).nonfinite, expected);
  });
}

// ---- Updates

struct Updated {
  Array param, grad;
  std::vector<Array> slots;

  UpdateRun run(const Rule& rule, uint32_t slots_used) {
    UpdateRun run{param.data(), grad.data(), {nullptr, nullptr, nullptr}, param.count()};
    for (size_t s = 0; s < rule.slots.size(); ++s) {
      if (slots_used >> s & 1) run.slots[s] = slots[s].data();
    }
    return run;
  }
};

Updated random_run(std::mt19937_64& random, const Rule& rule, const Case& c) {
  Updated made{
      Array(random, c.count, c.offset, c.kind), Array(random, c.count, random() % 16, c.kind), {}};
  for (const char* slot : rule.slots) {
    const bool positive = std::string_view(slot).find("sq") != std::string_view::npos;
    made.slots.emplace_back(random, c.count, random() % 16, c.kind, positive);
  }
  return made;
}

void expect_same(const Updated& a, const Updated& b) {
  ASSERT_TRUE(a.param.equals(b.param));
  ASSERT_TRUE(a.grad.equals(b.grad));
  for (size_t s = 0; s < a.slots.size(); ++s)
    ASSERT_TRUE(a.slots[s].equals(b.slots[s])) << "slot " << s;
}

/// All combinations of what changes a rule's path through its kernel.
std::vector<std::vector<double>> flag_combinations(const Rule& rule) {
  std::vector<std::vector<double>> all(1);
  for (const Setting& setting : rule.settings) all[0].push_back(setting.initial);
  for (const char* name :
       {"weight_decay", "amsgrad", "maximize", "momentum", "dampening", "nesterov", "centered",
        "decoupled_weight_decay", "initial_accumulator_value", "lr_decay"}) {
    const int place = find_setting(rule, name);
    if (place < 0) continue;
    for (size_t i = all.size(); i-- > 0;) {
      std::vector<double> other = all[i];
      const bool is_flag = rule.settings[size_t(place)].range == Setting::flag;
      other[size_t(place)] = other[size_t(place)] != 0 ? 0 : is_flag ? 1 : 0.1;
      all.push_back(other);
    }
  }
  return all;
}

class EveryUpdate : public ::testing::TestWithParam<std::tuple<Isa, int>> {
 protected:
  const Rule& rule_ = *find_rule(int32_t{std::get<1>(GetParam())});
  std::mt19937_64 random_{11};
};

INSTANTIATE_TEST_SUITE_P(Isa, EveryUpdate,
                         ::testing::Combine(::testing::ValuesIn(available_isas()),
                                            ::testing::Range(0, kRuleCount)),
                         [](const auto& made) {
                           return std::string(isa_name(std::get<0>(made.param))) + "_" +
                                  find_rule(int32_t{std::get<1>(made.param)})->name;
                         });

TEST_P(EveryUpdate, has_the_bits_of_the_scalar_one_and_writes_nothing_else) {
  const UpdateKernel update =
      test::update_kernel<float>(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const UpdateKernel reference = test::update_kernel<float>(Isa::scalar, std::get<1>(GetParam()));
  const std::vector<std::vector<double>> combinations = flag_combinations(rule_);
  size_t turn = 0;
  for_each_case([&](const Case& c) {
    for (int some = 0; some < 4; ++some, ++turn) {
      const std::vector<double>& settings = combinations[turn % combinations.size()];
      const uint32_t live = static_cast<uint32_t>(random_());
      const Scalars scalars =
          rule_.prepare({settings.data(), 1 + int64_t(random_() % 50), live, 0.25});
      Updated expected = random_run(random_, rule_, c);
      Updated actual = expected;
      const uint32_t used = rule_.slots_used(settings);
      {
        const FloatEnvironment environment;
        reference(expected.run(rule_, used), scalars);
      }
      const HostileCaller caller;
      const FloatEnvironment environment;
      // A slot that rests (momentum switched off) may be passed and must keep its values.
      update(actual.run(rule_, some % 2 == 0 ? used : ~0u), scalars);
      expect_same(actual, expected);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(EveryUpdate, sums_the_ranks_on_the_way_and_counts_what_is_not_finite) {
  const KernelTable& table = kernel_table(std::get<0>(GetParam()));
  const UpdateKernel update =
      test::update_kernel<float>(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const std::vector<std::vector<double>> combinations = flag_combinations(rule_);
  size_t turn = 0;
  for_each_case([&](const Case& c) {
    const std::vector<double>& settings = combinations[turn++ % combinations.size()];
    const Scalars scalars = rule_.prepare({settings.data(), 2, ~0u, 0.5});
    const uint32_t used = rule_.slots_used(settings);
    Updated expected = random_run(random_, rule_, c);
    Updated actual = expected;
    std::vector<Array> others;
    for (uint64_t rank = 0; rank < 1 + turn % 9; ++rank) {
      others.emplace_back(random_, c.count, random_() % 16, c.kind);
    }
    std::vector<const float*> in = {expected.grad.data()};
    for (const Array& other : others) in.push_back(other.data());

    const FloatEnvironment environment;
    Array sum(expected.grad);
    const uint64_t nonfinite = reduce(table, Norm::none, sum.data(), in, c.count).nonfinite;
    UpdateRun summed = expected.run(rule_, used);
    summed.grad = sum.data();
    ASSERT_EQ(update(summed, scalars), nonfinite);

    UpdateRun fused = actual.run(rule_, used);
    fused.others = in.data() + 1;
    fused.other_count = static_cast<int>(others.size());
    ASSERT_EQ(update(fused, scalars), nonfinite);
    expect_same(actual, expected);
  });
}

TEST_P(EveryUpdate, every_element_gets_the_same_update_wherever_it_lies) {
  const UpdateKernel update =
      test::update_kernel<float>(std::get<0>(GetParam()), std::get<1>(GetParam()));
  for (const std::vector<double>& settings : flag_combinations(rule_)) {
    const Scalars scalars = rule_.prepare({settings.data(), 3, ~0u, 0.5});
    Updated whole = random_run(random_, rule_, {100, 0, Kind::any_exponent});
    Updated pieces = whole;
    const UpdateRun run = pieces.run(rule_, rule_.slots_used(settings));
    for (size_t i = 0; i < run.count; ++i) {
      UpdateRun one{run.param + i, run.grad + i, {}, 1};
      for (int s = 0; s < kMaxSlots; ++s) one.slots[s] = run.slots[s] ? run.slots[s] + i : nullptr;
      update(one, scalars);
    }
    update(whole.run(rule_, rule_.slots_used(settings)), scalars);
    expect_same(pieces, whole);
  }
}

// ---- LAMB's two kernels

Scalars prepare_lamb(double weight_decay, int64_t step) {
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  std::vector<double> settings;
  for (const Setting& setting : lamb.settings) settings.push_back(setting.initial);
  settings[static_cast<size_t>(find_setting(lamb, "weight_decay"))] = weight_decay;
  return lamb.prepare({settings.data(), step, ~0u, 0.25});
}

/// Also where directions come to lie over the gradients.
TEST_P(EveryIsa, lamb_measures_in_pieces_as_reductions_do_and_writes_no_parameter) {
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  size_t turn = 0;
  for_each_case([&](const Case& c) {
    const Scalars scalars = prepare_lamb(turn++ % 2 == 0 ? 0.1 : 0, 1 + int64_t(random_() % 50));
    Updated run = random_run(random_, lamb, c);
    const Array before = run.param;
    const HostileCaller caller;
    const FloatEnvironment environment;
    Array turned = run.param, moved = run.grad;
    {
      Updated other = run;
      test::update_kernel<float>(Isa::scalar, ZERO_OPTIMIZER_LAMB)(other.run(lamb, 0b11), scalars);
      turned = other.param;
    }
    const size_t block = 16 * (1 + random_() % 8), head = 16 * (1 + random_() % (block / 16));
    std::vector<Squares> pieces((c.count + block - 1) / block + 1);
    const uint64_t found = table_.lamb.measure(run.run(lamb, 0b11), run.grad.data(), scalars, head,
                                               block, pieces.data());
    EXPECT_TRUE(run.param.equals(before));
    for (size_t i = 0; i < c.count; ++i) {
      const float made = run.grad.data()[i], wanted = turned.data()[i];
      ASSERT_TRUE(std::memcmp(&made, &wanted, sizeof made) == 0 ||
                  (made != made && wanted != wanted));
    }
    Array room(random_, c.count, 3, Kind::ordinary);
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    size_t piece = 0;
    for (size_t begin = 0, end = head; begin < c.count; begin = end, end += block, ++piece) {
      end = std::min(end, c.count);
      const auto squares = [&](const Array& values) {
        const float* const from = values.data() + begin;
        return reduce(scalar_, Norm::squares, room.data(), {from}, end - begin).norm;
      };
      ASSERT_TRUE(same(pieces[piece].param, squares(run.param)));
      ASSERT_TRUE(same(pieces[piece].direction, squares(run.grad)));
    }
    EXPECT_EQ(found, reduce(scalar_, Norm::none, room.data(), {moved.data()}, c.count).nonfinite);
  });
}

TEST_P(EveryIsa, the_step_of_lamb_goes_along_its_direction_and_writes_the_parameter_alone) {
  size_t turn = 0;
  const Rule& lamb = *find_rule(int32_t{ZERO_OPTIMIZER_LAMB});
  for_each_case([&](const Case& c) {
    Scalars scalars = prepare_lamb(turn++ % 2 == 0 ? 0.1 : 0, 3);
    scalars.value[lamb.trust->scalar] = 0.37;
    Updated run = random_run(random_, lamb, c);
    const Updated before = run;
    const HostileCaller caller;
    const FloatEnvironment environment;
    table_.lamb.step(run.param.data(), run.grad.data(), c.count, scalars);
    Updated expected = before;
    for (size_t i = 0; i < c.count; ++i) {
      const volatile float length = before.grad.data()[i] * 0.37f;
      expected.param.data()[i] = before.param.data()[i] - length;
    }
    expect_same(run, expected);
  });
}

// Both results are contracted away by a fused multiply-add: 1 - x * x is 0 only where x * x was
// rounded.
TEST_P(EveryIsa, products_are_rounded_before_they_are_added) {
  const float x = 1 + std::ldexp(1.0f, -12);
  float param[64], grad[64];
  std::fill_n(param, 64, 1 + std::ldexp(1.0f, -11));  // x * x rounded to float
  std::fill_n(grad, 64, x);
  Scalars scalars;
  scalars.value[rules::Sgd::lr] = x;
  table_.update[ZERO_OPTIMIZER_SGD]({param, grad, {}, 64}, scalars);
  for (const float value : param) EXPECT_EQ(value, 0);
}

#if defined(__x86_64__)
TEST(FloatEnvironment, is_standard_inside_and_the_callers_again_outside) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(0xFFC1);
  {
    const FloatEnvironment environment;
    EXPECT_EQ(_mm_getcsr(), 0x1F80u);
    volatile float denormal = 1e-40f;
    EXPECT_EQ(denormal * 0.5f * 2.0f, denormal);
    volatile double zero = 0;
    volatile double nan = zero / zero;
    static_cast<void>(nan);
  }
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after, 0xFFC1u);  // sticky flags included
}
#endif

}  // namespace
}  // namespace zero
