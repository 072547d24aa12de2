// SPDX-License-Identifier: Apache-2.0
// Sums of non-negative doubles without rounding, so that neither order nor number of ranks matters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zero {

/// A fixed-point number that spans the whole range of double. Trivially copyable: ranks exchange it
/// as bytes. Infinities and NaNs are remembered apart.
class ExactSum {
 public:
  void add(double value);  // value >= 0, or NaN
  void add(const ExactSum& other);

  /// The exact sum of all that was added, rounded to nearest, ties to even; NaN or infinity if one
  /// was added.
  double value() const;

 private:
  void carry();
  double rounded() const;  // of carried limbs
  bool half_or_more_below(std::size_t shift, bool tie_rounds_up) const;

  // Limb i counts units of 2^(32 i - 1074): the smallest denormal is unit 0 of limb 0, and the
  // largest double times 2^32 still fits.
  static constexpr std::size_t kLimbs = 68;
  // Each addition puts less than 2^32 into a limb, so 2^32 of them cannot wrap it.
  static constexpr uint64_t kMaxAdditions = uint64_t{1} << 31;

  std::array<uint64_t, kLimbs> limbs_{};
  uint64_t additions_ = 0;  // since the last carry
  uint32_t infinite_ = 0;   // 1 if an infinity was added
  uint32_t nan_ = 0;        // 1 if a NaN was added
};

}  // namespace zero
