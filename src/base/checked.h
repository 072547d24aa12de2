// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes from outside. An overflow returns nullopt instead of wrapping.
#pragma once

#include <cstdint>
#include <optional>

namespace zero {

template <class Integer>
std::optional<Integer> checked_add(Integer a, Integer b) {
  Integer sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <class Integer>
std::optional<Integer> checked_multiply(Integer a, Integer b) {
  Integer product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Returns the smallest multiple of `step` that is at least `value`. The result must not overflow.
template <class Integer>
constexpr Integer round_up(Integer value, Integer step) {
  return (value + step - 1) / step * step;
}

}  // namespace zero
