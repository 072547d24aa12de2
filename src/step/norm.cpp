// SPDX-License-Identifier: Apache-2.0
#include "step/norm.h"

#include <cmath>
#include <cstring>

#include "kernels/clamp.h"

namespace zero {

Norm norm_for(double p) {
  if (std::isinf(p)) return Norm::largest;
  if (p == 1) return Norm::abs;
  return p == 2 ? Norm::squares : Norm::none;
}

Reducer::Reducer(const KernelTable& kernels, double p)
    : kernels_(kernels), p_(p), norm_(norm_for(p)) {}

Reduction reduce_rounded(const KernelTable& kernels, Rounding rounding, DType from, Norm norm,
                         float* out, std::span<const void* const> in, size_t count,
                         float* scratch) {
  const ReduceKernel widen = kernels.reduction(DType::f32, from, Norm::none);
  const ReduceKernel last = kernels.reduction(DType::f32, DType::f32, norm);
  const bool divides = rounding.divisor != 1;
  const auto take = [&](float* to, size_t i) {
    widen(to, &in[i], 1, count);
    if (divides) scale(to, to, count, 1 / rounding.divisor);
    kernels.half(rounding.to).round(to, to, count);
  };
  take(out, 0);
  const void* const both[2] = {out, scratch};
  for (size_t i = 1; i < in.size(); i++) {
    take(scratch, i);
    if (i + 1 == in.size() && !divides) return last(out, both, 2, count);
    kernels.reduction(DType::f32, DType::f32, Norm::none)(out, both, 2, count);
  }
  if (divides) scale(out, out, count, rounding.divisor);
  return last(out, both, 1, count);
}

void Reducer::reduce(DType sum, DType from, void* out, std::span<const void* const> in,
                     size_t count, Rounding rounding) {
  Reduction piece;
  if (!rounding.any()) {
    piece =
        kernels_.reduction(sum, from, norm_)(out, in.data(), static_cast<int>(in.size()), count);
  } else {  // `out` may be an input
    piece = reduce_rounded(kernels_, rounding, from, norm_, sum_, in, count, scratch_);
    std::memcpy(out, sum_, count * sizeof(float));
  }
  record_.nonfinite += piece.nonfinite;
  if (norm_ == Norm::largest) {
    record_.max = larger_norm(record_.max, piece.norm);
  } else if (norm_ != Norm::none) {
    record_.sum.add(piece.norm);
  } else if (p_ != 0) {
    record_.sum.add(sum == DType::f64
                        ? kernels_.doubles.sum_powers(static_cast<const double*>(out), count, p_)
                        : kernels_.singles.sum_powers(static_cast<const float*>(out), count, p_));
  }
}

}  // namespace zero
