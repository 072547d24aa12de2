// SPDX-License-Identifier: Apache-2.0
// Norms by pieces of the grid: the same bits whoever owns a piece and in whatever order pieces
// come.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "kernels/step_state.h"
#include "optim/optimizer.h"
#include "plan/plan.h"

namespace zero {

/// Returns the norm that a reduction itself takes for p. Powers other than 1, 2 and infinity are
/// summed afterwards.
Norm norm_for(double p);

inline constexpr size_t kRounded = 2048;

/// Sets out = in[0] + in[1] + ... in fp32, each rounded first, for at most kRounded elements.
/// `scratch` has room for as many floats. `out` must not be an input.
Reduction reduce_rounded(const KernelTable& kernels, Rounding rounding, DType from, Norm norm,
                         float* out, std::span<const void* const> in, size_t count, float* scratch);

/// Sums pieces over ranks, and adds their norms and counts to a record. p = 0 takes no norm.
class Reducer {
 public:
  Reducer(const KernelTable& kernels, double p);
  /// Sets out = in[0] + in[1] + ... , each rounded first if `rounding` says so. If the types are
  /// the same, `out` may be any of the inputs.
  void reduce(DType sum, DType from, void* out, std::span<const void* const> in, size_t count,
              Rounding rounding = {});
  const NormSums& record() const { return record_; }

 private:
  const KernelTable& kernels_;
  const double p_;
  const Norm norm_;
  NormSums record_;
  alignas(64) float sum_[kRounded];
  alignas(64) float scratch_[kRounded];
};

/// Calls piece(first, count), in elements of the segment, for the parts of `segment` that are
/// pieces of the grid.
template <class Piece>
void for_each_piece(const Plan& plan, const Segment& segment, const Piece& piece) {
  const int64_t begin = plan.grid(segment.param) + segment.first;
  int64_t done = 0;
  while (done < segment.count) {
    const int64_t to_block_end = kBlock - (begin + done) % kBlock;
    const int64_t count = to_block_end < segment.count - done ? to_block_end : segment.count - done;
    piece(done, count);
    done += count;
  }
}

}  // namespace zero
