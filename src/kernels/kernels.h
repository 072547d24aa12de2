// SPDX-License-Identifier: Apache-2.0
// The kernel table: the loops over elements, one set for each instruction set, all with the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "rules/rule.h"

namespace zero {

enum class Isa { scalar, avx2, avx512 };

/// Where the values that are updated stand: in the parameter itself; in fp32 beside it; in a bf16
/// parameter and the 16 bits that its rounding cut off; or, what rounding cuts off being lost, in a
/// parameter that is rounded after each update.
enum class Master : int32_t { param, full, remainder, rounded };

/// One contiguous run of elements that share their scalars; Real is float or double, the type of
/// its arithmetic.
template <class Real>
struct UpdateRunOf {
  Real* param;
  const Real* grad;        // rank 0's gradients, or the sum over ranks
  Real* slots[kMaxSlots];  // state, in the order of Rule::slots; not touched, and may be null,
                           // where the settings use none
  size_t count;
  const Real* const* others = nullptr;  // the gradients of ranks 1, 2, ..., added to `grad` in this
  int other_count = 0;                  // order; Scalars::factor turns the sum into the gradient
};
using UpdateRun = UpdateRunOf<float>;

/// Updates the run and returns how many of the sums are infinite or NaN.
template <class Real>
using UpdateKernelOf = uint64_t (*)(const UpdateRunOf<Real>& run, const Scalars& scalars);
using UpdateKernel = UpdateKernelOf<float>;

/// Sums of squares of one piece, as reductions take them.
struct Squares {
  double param = 0;
  double direction = 0;
};

/// LAMB, whose step needs the norms of a whole tensor, in two kernels.
template <class Real>
struct LambOf {
  /// Updates the run's moments and writes the directions of its parameters, which stay as they are.
  /// `directions` may be any of the gradients. `pieces`: the first has `head` elements, the others
  /// `block`, and the last what is left. Returns how many of the sums are not finite.
  uint64_t (*measure)(const UpdateRunOf<Real>& run, Real* directions, const Scalars& scalars,
                      size_t head, size_t block, Squares* pieces);
  void (*step)(Real* params, const Real* directions, size_t count, const Scalars& scalars);
};

/// What a reduction takes of a piece beside its sums: terms in fp64, element i in lane i % 8, lanes
/// combined as ((0+4)+(2+6)) + ((1+5)+(3+7)); or the largest absolute value, NaN if there is one.
enum class Norm { none, abs, squares, largest };
inline constexpr int kNormCount = 4;

struct Reduction {
  double norm;         // 0 for Norm::none
  uint64_t nonfinite;  // how many of the sums are infinite or NaN
};

/// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ... ; each input is converted to the type of the
/// sums before it is added, exactly but for double to float, which is rounded. If the types are the
/// same, `out` may be any of the inputs, and is left alone if it is the only one.
using ReduceKernel = Reduction (*)(void* out, const void* const* in, int ranks, size_t count);

/// In the order of Norm.
struct Reductions {
  ReduceKernel kernels[kNormCount];
};

/// Reductions to one type of sums, by the type of the inputs.
struct Sums {
  Reductions of_f32, of_f64, of_bf16, of_f16;
};

/// Conversions of arrays that do not overlap.
using WidenKernel = void (*)(float* to, const uint16_t* from, size_t count);
using NarrowKernel = void (*)(uint16_t* to, const float* from, size_t count);
using RoundKernel = void (*)(float* to, const float* from, size_t count);

struct KernelTable {
  const char* name;
  Sums float_sums, double_sums;
  double (*sum_powers)(const float* data, size_t count, double p);  // of |x|^p, in lanes likewise
  double (*sum_powers_wide)(const double* data, size_t count, double p);
  const UpdateKernelOf<float>* update;  // by ZERO_OPTIMIZER_*; null for LAMB
  const UpdateKernelOf<double>* update_wide;
  LambOf<float> lamb;
  LambOf<double> lamb_wide;

  /// Exact.
  WidenKernel widen_bf16, widen_f16;
  /// To nearest, ties to even, beyond the range to infinity; every NaN becomes 0x7FC0 or 0x7E00.
  NarrowKernel narrow_bf16, narrow_f16;
  /// What values become that travel in 16 bits: narrowed and widened. `to` may be `from`.
  RoundKernel round_bf16, round_f16;

  /// A bf16 parameter is its fp32 master rounded half away from zero; with a remainder of 16 bits
  /// it is the whole master again, whose only NaN is 0x7FC00000.
  void (*join_remainder)(float* master, const uint16_t* param, const uint16_t* remainder,
                         size_t count);
  void (*split_remainder)(uint16_t* param, uint16_t* remainder, const float* master, size_t count);

  WidenKernel widen(DType from) const { return from == DType::bf16 ? widen_bf16 : widen_f16; }
  RoundKernel round(DType to) const { return to == DType::bf16 ? round_bf16 : round_f16; }
  NarrowKernel narrow(DType to) const { return to == DType::bf16 ? narrow_bf16 : narrow_f16; }

  /// In the arithmetic of float or double.
  template <class Real>
  UpdateKernelOf<Real> update_of(int32_t optimizer) const {
    if constexpr (std::is_same_v<Real, double>) {
      return update_wide[optimizer];
    } else {
      return update[optimizer];
    }
  }
  template <class Real>
  const LambOf<Real>& lamb_of() const {
    if constexpr (std::is_same_v<Real, double>) {
      return lamb_wide;
    } else {
      return lamb;
    }
  }

  /// From inputs of a floating type to sums of f32 or f64.
  ReduceKernel reduction(DType sum, DType from, Norm norm) const;
};

/// The table of an instruction set that this machine has.
const KernelTable& kernel_table(Isa isa);

/// What this machine has, from scalar upward.
std::vector<Isa> available_isas();
Isa best_isa();
const char* isa_name(Isa isa);

}  // namespace zero
