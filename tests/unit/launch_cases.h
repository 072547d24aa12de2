// SPDX-License-Identifier: Apache-2.0
// What tests of launches are made of: arrays of any floating type, at any place, with values of any
// kind.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/launches.h"

namespace zero::test {

using Random = std::mt19937_64;

enum class Kind { ordinary, small, special };
inline constexpr Kind kKinds[] = {Kind::ordinary, Kind::small, Kind::special};

inline double random_value(Random& random, Kind kind) {
  std::uniform_real_distribution<double> mantissa(-2, 2);
  const int exponent = static_cast<int>(random() % 20);
  if (kind == Kind::small) return std::ldexp(mantissa(random), -149 + exponent);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double odd[] = {0.0, -0.0, kInfinity, -kInfinity, std::nan(""), 3e38, -6e4, 1e-45};
  if (kind == Kind::special && random() % 64 == 0) return odd[random() % std::size(odd)];
  return std::ldexp(mantissa(random), -exponent / 2);
}

/// `count` elements of a type behind `shift` elements and a margin, with a margin behind them.
class Elements {
 public:
  Elements(DType type, size_t count, size_t shift)
      : type_(type),
        count_(count),
        lines_((2 * kMargin + shift) * size_of(type) / 64 + count * size_of(type) / 64 + 2),
        first_((kMargin + shift) * size_of(type)) {}

  Elements(Random& random, DType type, size_t count, size_t shift, Kind kind, bool positive = false)
      : Elements(type, count, shift) {
    for (Line& line : lines_) {
      for (std::byte& byte : line.bytes) byte = static_cast<std::byte>(random());
    }
    for (size_t i = 0; i < count; i++) {
      const double value = random_value(random, kind);
      set(i, positive ? std::fabs(value) : value);
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

  void set(size_t i, double value) {
    const KernelTable& kernels = kernel_table(Isa::scalar);
    const auto single = static_cast<float>(value);
    if (type_ == DType::f64) {
      as<double>()[i] = value;
    } else if (type_ == DType::f32) {
      as<float>()[i] = single;
    } else {
      kernels.narrow(type_)(as<uint16_t>() + i, &single, 1);
    }
  }

  /// The same elements, but for the bits of NaNs, and the same bytes around them.
  ::testing::AssertionResult equals(const Elements& other) const {
    const size_t bytes = lines_.size() * sizeof(Line), size = size_of(type_);
    const std::byte* const a = &lines_[0].bytes[0];
    const std::byte* const b = &other.lines_[0].bytes[0];
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
  bool is_nan(size_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, data() + i * size_of(type_), size_of(type_));
    switch (type_) {
      case DType::f64:
        return (bits & ~(1ull << 63)) > 0x7FF0000000000000;
      case DType::f32:
        return (bits & 0x7FFFFFFF) > 0x7F800000;
      case DType::bf16:
        return (bits & 0x7FFF) > 0x7F80;
      default:
        return (bits & 0x7FFF) > 0x7C00;
    }
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

/// The tiles of runs or moves with these counts.
inline std::vector<launch::Tile> tiles_of(const std::vector<size_t>& counts) {
  std::vector<launch::Tile> tiles;
  for (size_t i = 0; i < counts.size(); i++) {
    for (uint32_t tile = 0; tile * launch::kTileElements < static_cast<int64_t>(counts[i]); tile++)
      tiles.push_back({static_cast<uint32_t>(i), tile});
  }
  return tiles;
}

/// Elements behind so many others that no 32 bits count them; those need not be there, as a launch
/// of these tiles does not touch them. `before` of an array of `size` bytes an element: where the
/// first of all would stand.
inline constexpr int64_t kFar = int64_t{1} << 31;
inline constexpr launch::Tile kFarTile{0, static_cast<uint32_t>(kFar / launch::kTileElements)};
template <class Byte>
Byte* before(Byte* array, DType type) {
  const uintptr_t bytes = static_cast<uintptr_t>(kFar) * size_of(type);
  return reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(array) - bytes);
}

/// Settings that a rule allows, which change from one to the next in what they switch on.
inline std::vector<double> random_settings(Random& random, const Rule& rule) {
  std::vector<double> settings;
  for (const Setting& setting : rule.settings) {
    double value = setting.initial;
    const std::string_view name = setting.name;
    if (setting.range == Setting::flag) value = static_cast<double>(random() % 2);
    if (name == "weight_decay") value = random() % 2 == 0 ? 0 : 0.05;
    if (name == "momentum") value = random() % 3 == 0 ? 0 : 0.875;
    if (name == "lr_decay") value = 0.01;
    settings.push_back(value);
  }
  settings.resize(kMaxSettings);
  return settings;
}

}  // namespace zero::test
