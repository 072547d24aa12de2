// SPDX-License-Identifier: Apache-2.0
// Adds non-negative doubles without rounding, so that neither their order nor the number of ranks
// matters. It uses only integer arithmetic, which ignores rounding modes and flushes no denormals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/host_device.h"
#include "kernels/bits.h"

namespace zero {

/// A fixed-point number that spans the whole range of double. It is trivially copyable, because
/// ranks exchange it as bytes. Flags record infinities and NaNs.
class ExactSum {
  // Limb i counts units of 2^(32 i - 1074): the smallest denormal is unit 0 of limb 0, and the
  // largest double times 2^32 still fits.
  static constexpr std::size_t kLimbs = 68;

 public:
  static constexpr std::size_t kWords = kLimbs + 1;

  /// Adds `value`, which must be >= 0, or NaN.
  ZERO_HOST_DEVICE void add(double value) {
    add_by(value, Alone());
    if (additions_ >= kMaxAdditions) carry();
  }
  ZERO_HOST_DEVICE void add(const ExactSum& other);

  /// Returns the exact sum of everything that was added, rounded to nearest, ties to even. Returns
  /// NaN or infinity if one was added.
  ZERO_HOST_DEVICE double value() const;

  // ---- For concurrent threads. `adder(word, number)` adds to a word atomically, and
  // adder.mark(flag) sets the flag to 1. These functions never carry, but value() and add(other)
  // do. At most 2^30 values may be added before one of those is called.

  template <class Adder>
  ZERO_HOST_DEVICE void add_by(double value, const Adder& adder);

  /// Adds word `word` of the kWords words of `other`.
  template <class Adder>
  ZERO_HOST_DEVICE void add_word_by(std::size_t word, const ExactSum& other, const Adder& adder);

 private:
  /// The adder of a single thread.
  struct Alone {
    ZERO_HOST_DEVICE void operator()(uint64_t& word, uint64_t number) const { word += number; }
    ZERO_HOST_DEVICE void mark(uint32_t& flag) const { flag = 1; }
  };

  ZERO_HOST_DEVICE void carry();
  ZERO_HOST_DEVICE double rounded() const;  // of carried limbs only
  ZERO_HOST_DEVICE bool half_or_more_below(std::size_t shift, bool tie_rounds_up) const;

  static constexpr uint64_t kLimbMask = 0xFFFFFFFF;
  static constexpr std::size_t kMantissaBits = 52;
  static constexpr std::size_t kInfinityExponent = 2047;
  static constexpr uint64_t kInfinityBits = 0x7FF0000000000000;
  static constexpr uint64_t kNanBits = 0x7FF8000000000000;

  // Each addition adds less than 2^32 to a limb, so 2^32 additions cannot overflow it.
  static constexpr uint64_t kMaxAdditions = uint64_t{1} << 31;

  uint64_t limbs_[kLimbs] = {};
  uint64_t additions_ = 0;  // since the last carry
  uint32_t infinite_ = 0;   // 1 if an infinity was added
  uint32_t nan_ = 0;        // 1 if a NaN was added
};

static_assert(std::is_trivially_copyable_v<ExactSum>);
static_assert(sizeof(ExactSum) == 70 * 8);  // no padding: ranks exchange the bytes

template <class Adder>
ZERO_HOST_DEVICE void ExactSum::add_by(double value, const Adder& adder) {
  const uint64_t bits = word_of(value) & ~(1ull << 63);
  if (bits >= kInfinityBits) {
    adder.mark(bits == kInfinityBits ? infinite_ : nan_);
    return;
  }
  // value = mantissa * 2^(shift - 1074)
  uint64_t mantissa = bits & ((1ull << kMantissaBits) - 1);
  unsigned shift = static_cast<unsigned>(bits >> kMantissaBits);
  if (shift != 0) {
    mantissa |= 1ull << kMantissaBits;
    --shift;
  }
  const std::size_t limb = shift / 32;
  const unsigned offset = shift % 32;
  const uint64_t low = (mantissa & kLimbMask) << offset;
  const uint64_t high = (mantissa >> 32) << offset;  // below 2^53
  adder(limbs_[limb], low & kLimbMask);
  adder(limbs_[limb + 1], (low >> 32) + (high & kLimbMask));
  adder(limbs_[limb + 2], high >> 32);
  adder(additions_, 2);  // two parts were added to the middle limb
}

template <class Adder>
ZERO_HOST_DEVICE void ExactSum::add_word_by(std::size_t word, const ExactSum& other,
                                            const Adder& adder) {
  if (word < kLimbs) {
    if (other.limbs_[word] != 0) adder(limbs_[word], other.limbs_[word]);
    return;
  }
  if (other.additions_ != 0) adder(additions_, other.additions_);
  if (other.infinite_ != 0) adder.mark(infinite_);
  if (other.nan_ != 0) adder.mark(nan_);
}

ZERO_HOST_DEVICE inline void ExactSum::add(const ExactSum& other) {
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  additions_ += other.additions_;  // each side has fewer than 2^31, so no limb overflows
  infinite_ |= other.infinite_;
  nan_ |= other.nan_;
  if (additions_ >= kMaxAdditions) carry();
}

ZERO_HOST_DEVICE inline void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= kLimbMask;
  }
  additions_ = 1;
}

ZERO_HOST_DEVICE inline double ExactSum::value() const {
  if (nan_ != 0) return real_of<double>(kNanBits);
  if (infinite_ != 0) return real_of<double>(kInfinityBits);
  ExactSum sum = *this;
  sum.carry();
  return sum.rounded();
}

// If `shift` bits lie below the 53 that a double keeps, its bits are (shift << 52) + mantissa,
// because the leading one adds 1 to the exponent field. That also holds for denormals (shift 0),
// and for a mantissa that is rounded up to 2^53.
ZERO_HOST_DEVICE inline double ExactSum::rounded() const {
  std::size_t top = kLimbs - 1;
  while (top > 0 && limbs_[top] == 0) --top;
  const std::size_t bits = 32 * top + width_of(limbs_[top]);
  if (bits <= kMantissaBits + 1) return real_of<double>(limbs_[0] | limbs_[1] << 32);
  const std::size_t shift = bits - (kMantissaBits + 1);
  if (shift >= kInfinityExponent - 1) return real_of<double>(kInfinityBits);

  const std::size_t limb = shift / 32;
  const std::size_t offset = shift % 32;
  uint64_t mantissa = limbs_[limb] >> offset | limbs_[limb + 1] << (32 - offset);
  if (offset != 0) mantissa |= limbs_[limb + 2] << (64 - offset);
  if (half_or_more_below(shift, (mantissa & 1) != 0)) ++mantissa;
  return real_of<double>((uint64_t{shift} << kMantissaBits) + mantissa);
}

ZERO_HOST_DEVICE inline bool ExactSum::half_or_more_below(std::size_t shift,
                                                          bool tie_rounds_up) const {
  const std::size_t limb = (shift - 1) / 32;
  const uint64_t half = 1ull << ((shift - 1) % 32);
  if ((limbs_[limb] & half) == 0) return false;
  if (tie_rounds_up || (limbs_[limb] & (half - 1)) != 0) return true;
  for (std::size_t i = 0; i < limb; ++i) {
    if (limbs_[i] != 0) return true;
  }
  return false;
}

}  // namespace zero
