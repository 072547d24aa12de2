// SPDX-License-Identifier: Apache-2.0
// Arrays of any floating type, at any position, with values of any kind, and settings of any rule.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "support/halves.h"

namespace zero::test {

using Random = std::mt19937_64;

enum class Kind { ordinary, any_exponent, denormal, special };
inline constexpr Kind kKinds[] = {Kind::ordinary, Kind::any_exponent, Kind::denormal,
                                  Kind::special};
inline constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

/// 0 to 70 covers every remainder of every vector width. The rest crosses blocks.
inline std::vector<size_t> telling_counts() {
  std::vector<size_t> all;
  for (size_t count = 0; count <= 70; ++count) all.push_back(count);
  all.insert(all.end(), {127, 128, 513, 1000, 1023, 1024, 1025, 2048, 4099});
  return all;
}

struct FloatFields {
  int exponent_bits, mantissa_bits;
  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
  uint64_t infinity() const { return sign() - (uint64_t{1} << mantissa_bits); }
};

inline FloatFields fields_of(DType type) {
  if (size_of(type) == sizeof(uint16_t))
    return type == DType::bf16 ? FloatFields{8, 7} : FloatFields{5, 10};
  return type == DType::f32 ? FloatFields{8, 23} : FloatFields{11, 52};
}

/// Returns the bits of a number of that kind. Every NaN is quiet.
inline uint64_t random_bits(Random& random, DType type, Kind kind) {
  const FloatFields fields = fields_of(type);
  const uint64_t mantissas = uint64_t{1} << fields.mantissa_bits;
  const uint64_t infinite = fields.infinity() / mantissas;  // the exponent
  const uint64_t drawn = random();
  const uint64_t sign = (drawn & 1) * fields.sign(), choice = drawn >> 1 & 0xFFFF,
                 part = drawn >> 17;
  uint64_t mantissa = random() % mantissas;
  uint64_t exponent = infinite / 2 - 7 + part % 12;
  if (kind == Kind::any_exponent) exponent = part % infinite;
  if (kind == Kind::denormal) exponent = part % 2;
  if (kind == Kind::special && choice % 16 == 0) {
    const struct {
      uint64_t exponent, mantissa;
    } odd[] = {
        {0, 0}, {0, 1}, {infinite - 1, mantissas - 1}, {infinite, 0}, {infinite, mantissas / 2}};
    exponent = odd[part % std::size(odd)].exponent;
    mantissa = odd[part % std::size(odd)].mantissa;
  }
  return sign | exponent * mantissas | mantissa;
}

/// `count` elements of a type after `shift` elements and a margin, with another margin after them.
class Elements {
 public:
  Elements(Random& random, DType type, size_t count, size_t shift, Kind kind, bool positive = false)
      : type_(type),
        count_(count),
        lines_((2 * kMargin + shift + count) * size_of(type) / 64 + 2),
        first_((kMargin + shift) * size_of(type)) {
    std::memset(lines_.data(), 0xA5, lines_.size() * sizeof(Line));
    for (size_t i = 0; i < count; i++) {
      uint64_t bits = random_bits(random, type, kind);
      if (positive) bits &= ~fields_of(type).sign();
      std::memcpy(data() + i * size_of(type), &bits, size_of(type));
    }
  }

  DType type() const { return type_; }
  size_t count() const { return count_; }
  std::byte* data() { return &lines_[0].bytes[0] + first_; }
  const std::byte* data() const { return &lines_[0].bytes[0] + first_; }
  template <class Value>
  Value* as() {
    return reinterpret_cast<Value*>(data());
  }

  /// Halves are evaluated from the definition of their formats.
  double value(size_t i) const {
    const uint64_t bits = bits_of(i);
    if (type_ == DType::f64) return std::bit_cast<double>(bits);
    if (type_ == DType::f32) return double{std::bit_cast<float>(static_cast<uint32_t>(bits))};
    return (type_ == DType::bf16 ? kBf16 : kF16).value(static_cast<uint32_t>(bits));
  }

  /// Compares the elements, except the bits of NaNs, and the bytes around them.
  ::testing::AssertionResult equals(const Elements& other) const {
    const size_t bytes = lines_.size() * sizeof(Line), size = size_of(type_);
    const std::byte* const a = &lines_[0].bytes[0];
    const std::byte* const b = &other.lines_[0].bytes[0];
    if (std::memcmp(a, b, bytes) == 0) return ::testing::AssertionSuccess();
    for (size_t i = 0; i < bytes; i++) {
      if (a[i] == b[i]) continue;
      const size_t element = i < first_ ? count_ : (i - first_) / size;
      if (element < count_ && is_nan(element) && other.is_nan(element)) continue;
      return ::testing::AssertionFailure()
             << dtype_name(type_) << " element "
             << (static_cast<double>(i) - static_cast<double>(first_)) / static_cast<double>(size)
             << " of " << count_;
    }
    return ::testing::AssertionSuccess();
  }

 private:
  uint64_t bits_of(size_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, data() + i * size_of(type_), size_of(type_));
    return bits;
  }
  bool is_nan(size_t i) const {
    const FloatFields fields = fields_of(type_);
    return (bits_of(i) & ~fields.sign()) > fields.infinity();
  }

  static constexpr size_t kMargin = 32;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  DType type_;
  size_t count_;
  std::vector<Line> lines_;
  size_t first_;
};

inline std::vector<double> defaults_of(const Rule& rule) {
  std::vector<double> settings;
  for (const Setting& setting : rule.settings) settings.push_back(setting.initial);
  return settings;
}

/// Returns valid settings of a rule. They switch different features on in each call.
inline std::vector<double> random_settings(Random& random, const Rule& rule) {
  std::vector<double> settings = defaults_of(rule);
  for (size_t i = 0; i < settings.size(); i++) {
    const std::string_view name = rule.settings[i].name;
    const bool on = random() % 2 == 0;
    if (rule.settings[i].range.flag) settings[i] = on;
    if (name == "weight_decay") settings[i] = on ? 0.05 : 0;
    if (name == "momentum") settings[i] = on ? 0.875 : 0;
    if (name == "dampening" || name == "initial_accumulator_value") settings[i] = on ? 0.1 : 0;
    if (name == "lr_decay") settings[i] = 0.01;
  }
  settings.resize(kMaxSettings);
  return settings;
}

}  // namespace zero::test
