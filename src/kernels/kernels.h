// SPDX-License-Identifier: Apache-2.0
// The kernel table: the loops over elements, one set for each instruction set, all with the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rule.h"

namespace zero {

enum class Isa { scalar, avx2, avx512 };

/// One contiguous run of elements that share their scalars.
struct UpdateRun {
  float* param;
  const float* grad;        // rank 0's gradients, or the sum over ranks
  float* slots[kMaxSlots];  // state, in the order of Rule::slots; not touched, and may be null,
                            // where the settings use none
  size_t count;
  const float* const* others =
      nullptr;          // the gradients of ranks 1, 2, ..., added to `grad` in this
  int other_count = 0;  // order; Scalars::factor turns the sum into the gradient
};

/// Updates the run and returns how many of the sums are infinite or NaN.
using UpdateKernel = uint64_t (*)(const UpdateRun& run, const Scalars& scalars);

struct KernelTable {
  const char* name;

  /// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ... ; `out` may be any of the inputs.
  void (*sum_in_rank_order)(float* out, const float* const* in, int ranks, size_t count);

  /// How many of the elements are infinite or NaN.
  uint64_t (*count_nonfinite)(const float* data, size_t count);

  // Piece sums for norms, in fp64: element i goes to lane i % 8, lanes are then combined as
  // ((0+4)+(2+6)) + ((1+5)+(3+7)). max_abs gives NaN if there is one.
  double (*sum_abs)(const float* data, size_t count);
  double (*sum_squares)(const float* data, size_t count);
  double (*sum_powers)(const float* data, size_t count, double p);
  double (*max_abs)(const float* data, size_t count);

  UpdateKernel update[kRuleCount];
};

/// The table of an instruction set that this machine has.
const KernelTable& kernel_table(Isa isa);

/// What this machine has, from scalar upward.
std::vector<Isa> available_isas();
Isa best_isa();
const char* isa_name(Isa isa);

}  // namespace zero
