// SPDX-License-Identifier: Apache-2.0
#include "step/norm.h"

#include <cmath>

namespace zero {
namespace {

double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return a < b ? b : a;
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

void NormTaker::add(const float* data, size_t count) {
  record_.nonfinite += kernels_.count_nonfinite(data, count);
  if (p_ == 0) return;
  if (std::isinf(p_)) {
    record_.max = larger(record_.max, kernels_.max_abs(data, count));
  } else if (p_ == 1) {
    record_.sum.add(kernels_.sum_abs(data, count));
  } else if (p_ == 2) {
    record_.sum.add(kernels_.sum_squares(data, count));
  } else {
    record_.sum.add(kernels_.sum_powers(data, count, p_));
  }
}

}  // namespace zero
