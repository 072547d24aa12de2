// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic only: no rounding mode and no flush of denormals reaches it.
#include "kernels/exact_sum.h"

#include <bit>
#include <cstddef>
#include <limits>
#include <type_traits>

namespace zero {
namespace {

constexpr uint64_t kLimbMask = 0xFFFFFFFF;
constexpr size_t kMantissaBits = 52;
constexpr size_t kInfinityExponent = 2047;
constexpr uint64_t kInfinityBits = 0x7FF0000000000000;

}  // namespace

static_assert(std::is_trivially_copyable_v<ExactSum>);
static_assert(sizeof(ExactSum) == 70 * 8);  // no padding: ranks exchange the bytes

void ExactSum::add(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value) & ~(1ull << 63);
  if (bits >= kInfinityBits) {
    (bits == kInfinityBits ? infinite_ : nan_) = 1;
    return;
  }
  // value = mantissa * 2^(shift - 1074)
  uint64_t mantissa = bits & ((1ull << kMantissaBits) - 1);
  unsigned shift = static_cast<unsigned>(bits >> kMantissaBits);
  if (shift != 0) {
    mantissa |= 1ull << kMantissaBits;
    --shift;
  }
  const size_t limb = shift / 32;
  const unsigned offset = shift % 32;
  const uint64_t low = (mantissa & kLimbMask) << offset;
  const uint64_t high = (mantissa >> 32) << offset;  // below 2^53
  limbs_[limb] += low & kLimbMask;
  limbs_[limb + 1] += (low >> 32) + (high & kLimbMask);
  limbs_[limb + 2] += high >> 32;
  additions_ += 2;  // the middle limb took two parts
  if (additions_ >= kMaxAdditions) carry();
}

void ExactSum::add(const ExactSum& other) {
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  additions_ += other.additions_;  // each side's is below 2^31, so no limb has wrapped
  infinite_ |= other.infinite_;
  nan_ |= other.nan_;
  if (additions_ >= kMaxAdditions) carry();
}

void ExactSum::carry() {
  for (size_t i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= kLimbMask;
  }
  additions_ = 1;
}

double ExactSum::value() const {
  if (nan_ != 0) return std::numeric_limits<double>::quiet_NaN();
  if (infinite_ != 0) return std::numeric_limits<double>::infinity();
  ExactSum sum = *this;
  sum.carry();
  return sum.rounded();
}

// With `shift` bits below the 53 that a double keeps, its bits are (shift << 52) + mantissa: the
// leading one adds 1 to the exponent field. That holds for denormals (shift 0), and for a mantissa
// that rounding lifts to 2^53.
double ExactSum::rounded() const {
  size_t top = kLimbs - 1;
  while (top > 0 && limbs_[top] == 0) --top;
  const size_t bits = 32 * top + static_cast<size_t>(std::bit_width(limbs_[top]));
  if (bits <= kMantissaBits + 1) return std::bit_cast<double>(limbs_[0] | limbs_[1] << 32);
  const size_t shift = bits - (kMantissaBits + 1);
  if (shift >= kInfinityExponent - 1) return std::numeric_limits<double>::infinity();

  const size_t limb = shift / 32;
  const size_t offset = shift % 32;
  uint64_t mantissa = limbs_[limb] >> offset | limbs_[limb + 1] << (32 - offset);
  if (offset != 0) mantissa |= limbs_[limb + 2] << (64 - offset);
  if (half_or_more_below(shift, (mantissa & 1) != 0)) ++mantissa;
  return std::bit_cast<double>((uint64_t{shift} << kMantissaBits) + mantissa);
}

bool ExactSum::half_or_more_below(size_t shift, bool tie_rounds_up) const {
  const size_t limb = (shift - 1) / 32;
  const uint64_t half = 1ull << ((shift - 1) % 32);
  if ((limbs_[limb] & half) == 0) return false;
  if (tie_rounds_up || (limbs_[limb] & (half - 1)) != 0) return true;
  for (size_t i = 0; i < limb; ++i) {
    if (limbs_[i] != 0) return true;
  }
  return false;
}

}  // namespace zero
