// SPDX-License-Identifier: Apache-2.0
// Computes norms from the pieces of the grid. The result is bitwise identical for any owners and
// any order of the pieces.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "kernels/step_state.h"
#include "optim/optimizer.h"
#include "plan/plan.h"

namespace zero {

/// Returns the norm that a reduction computes on the way for p. If p is not 1, 2 or infinity,
/// powers are summed afterwards.
Norm norm_for(double p);

inline constexpr size_t kRounded = 2048;

/// Sets out = in[0] + in[1] + ... in fp32, with each input rounded first, for at most kRounded
/// elements. `scratch` has room for `count` floats. `out` must not be an input.
Reduction reduce_rounded(const KernelTable& kernels, Rounding rounding, DType from, Norm norm,
                         float* out, std::span<const void* const> in, size_t count, float* scratch);

/// Sums pieces over ranks, and adds their norms and counts of non-finite elements to a record. If p
/// is 0, there are no norms.
class Reducer {
 public:
  Reducer(const KernelTable& kernels, double p);
  /// Sets out = in[0] + in[1] + ... , with each input rounded first as `rounding` specifies. If the
  /// types are the same, `out` may be one of the inputs.
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

/// Calls piece(first, count) for the pieces of the grid in `segment`. `first` is an element of the
/// segment.
template <class Piece>
void for_each_piece(const Plan& plan, const Segment& segment, const Piece& piece) {
  const int64_t begin = plan.grid_of(segment);
  int64_t done = 0;
  while (done < segment.count) {
    const int64_t to_block_end = kBlock - (begin + done) % kBlock;
    const int64_t count = to_block_end < segment.count - done ? to_block_end : segment.count - done;
    piece(done, count);
    done += count;
  }
}

}  // namespace zero
