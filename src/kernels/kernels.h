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

/// What a reduction takes of a piece beside its sums: terms in fp64, element i in lane i % 8, lanes
/// combined as ((0+4)+(2+6)) + ((1+5)+(3+7)); or the largest absolute value, NaN if there is one.
enum class Norm { none, abs, squares, largest };
inline constexpr int kNormCount = 4;

struct Reduction {
  double norm;         // 0 for Norm::none
  uint64_t nonfinite;  // how many of the sums are infinite or NaN
};

/// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ... ; `out` may be any of the inputs, and is left
/// alone if it is the only one.
using ReduceKernel = Reduction (*)(float* out, const float* const* in, int ranks, size_t count);

struct KernelTable {
  const char* name;
  ReduceKernel reduce[kNormCount];
  double (*sum_powers)(const float* data, size_t count, double p);  // of |x|^p, in lanes likewise
  UpdateKernel update[kRuleCount];
};

/// The table of an instruction set that this machine has.
const KernelTable& kernel_table(Isa isa);

/// What this machine has, from scalar upward.
std::vector<Isa> available_isas();
Isa best_isa();
const char* isa_name(Isa isa);

}  // namespace zero
