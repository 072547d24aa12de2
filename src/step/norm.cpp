// SPDX-License-Identifier: Apache-2.0
#include "step/norm.h"

#include <cmath>

namespace zero {
namespace {

double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return a < b ? b : a;
}

/// What the reduction itself takes; powers other than these are summed afterwards.
Norm norm_for(double p) {
  if (std::isinf(p)) return Norm::largest;
  if (p == 1) return Norm::abs;
  return p == 2 ? Norm::squares : Norm::none;
}

}  // namespace

void NormRecord::add(const NormRecord& other) {
  sum.add(other.sum);
  max = larger(max, other.max);
  nonfinite += other.nonfinite;
}

double norm_of(const NormRecord& record, double p) {
  if (std::isinf(p)) return record.max;
  const double sum = record.sum.value();
  if (p == 1) return sum;
  if (p == 2) return std::sqrt(sum);
  return std::pow(sum, 1 / p);
}

Reducer::Reducer(const KernelTable& kernels, double p)
    : kernels_(kernels), p_(p), norm_(norm_for(p)) {}

void Reducer::reduce(DType sum, DType from, void* out, std::span<const void* const> in,
                     size_t count) {
  const Reduction piece =
      kernels_.reduction(sum, from, norm_)(out, in.data(), static_cast<int>(in.size()), count);
  record_.nonfinite += piece.nonfinite;
  if (norm_ == Norm::largest) {
    record_.max = larger(record_.max, piece.norm);
  } else if (norm_ != Norm::none) {
    record_.sum.add(piece.norm);
  } else if (p_ != 0) {
    record_.sum.add(sum == DType::f64
                        ? kernels_.sum_powers_wide(static_cast<const double*>(out), count, p_)
                        : kernels_.sum_powers(static_cast<const float*>(out), count, p_));
  }
}

}  // namespace zero
