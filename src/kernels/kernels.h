// SPDX-License-Identifier: Apache-2.0
// Defines the kernel table: the loops over elements, one set for each instruction set. All sets
// give bitwise identical results.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "rules/rule.h"

namespace zero {

enum class Isa { scalar, neon, avx2, avx512 };

/// Where the updated values are. param: in the parameter itself. full: in fp32 master weights
/// beside it. remainder: in a bf16 parameter and the 16 bits that its rounding cut off. rounded: in
/// a parameter that is rounded after each update, which loses the cut-off bits.
enum class Master : int32_t { param, full, remainder, rounded };

/// How the slots of a rule are stored: as the arithmetic uses them, or as bf16.
enum class SlotFormat : int32_t { full = ZERO_STATE_DTYPE_FULL, bf16 = ZERO_STATE_DTYPE_BFLOAT16 };

/// One contiguous run of elements that share their scalars. Real, the type of its arithmetic, is
/// float or double.
template <class Real>
struct UpdateRunOf {
  Real* param;
  const Real* grad;        // rank 0's gradients, or the sum over ranks
  Real* slots[kMaxSlots];  // state, in the order of Rule::slots; a slot that the settings do not
                           // use is not touched and may be null
  size_t count;
  const Real* const* others = nullptr;  // the gradients of ranks 1, 2, ..., added to `grad` in this
  int other_count = 0;                  // order; Scalars::factor turns the sum into the gradient
};
using UpdateRun = UpdateRunOf<float>;

/// Updates the run and returns how many of the sums are infinite or NaN.
template <class Real>
using UpdateKernelOf = uint64_t (*)(const UpdateRunOf<Real>& run, const Scalars& scalars);

/// The sums of squares of one piece, added in the lanes of Norm::squares.
struct Squares {
  double param = 0;
  double direction = 0;
};

/// The two kernels of LAMB, whose step needs the norms of a whole tensor.
template <class Real>
struct LambOf {
  /// Updates the moments of the run and writes its directions, not its parameters. `directions` may
  /// be any of the gradients. Writes one Squares per piece: the first piece has `head` elements,
  /// the others `block`, and the last the rest. Returns how many sums are infinite or NaN.
  uint64_t (*measure)(const UpdateRunOf<Real>& run, Real* directions, const Scalars& scalars,
                      size_t head, size_t block, Squares* pieces);
  void (*step)(Real* params, const Real* directions, size_t count, const Scalars& scalars);
};

/// The norm of a piece that a reduction computes along with its sums. abs and squares add terms in
/// fp64: element i is added to lane i % 8, and lanes are combined as ((0+4)+(2+6)) + ((1+5)+(3+7)).
/// largest is the largest absolute value, or NaN if there is one.
enum class Norm { none, abs, squares, largest };
inline constexpr int kNormCount = 4;

struct Reduction {
  double norm;         // 0 for Norm::none
  uint64_t nonfinite;  // how many of the sums are infinite or NaN
};

/// Sets out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ... Each input is first converted to the type
/// of the sums, exactly except from double to float. If the types are the same, `out` may be any of
/// the inputs; if it is the only input, nothing is written.
using ReduceKernel = Reduction (*)(void* out, const void* const* in, int ranks, size_t count);

/// Kernels in the order of Norm, and by the type of the inputs.
using Reductions = std::array<ReduceKernel, kNormCount>;
using ReductionsByType = std::array<Reductions, std::size(kDTypeFacts)>;

/// Kernels with arithmetic in float or double, which is the type of sums.
template <class Real>
struct Arithmetic {
  ReductionsByType reductions;
  double (*sum_powers)(const Real* data, size_t count, double p);  // of |x|^p, in the same lanes
  const UpdateKernelOf<Real>* update;  // by ZERO_OPTIMIZER_*; null for LAMB
  LambOf<Real> lamb;
};

/// Conversions between fp32 and a 16-bit type, of arrays that do not overlap.
struct Conversions {
  /// Widens exactly.
  void (*widen)(float* to, const uint16_t* from, size_t count);
  /// Rounds to nearest, ties to even; numbers beyond the range become infinity, and every NaN
  /// becomes 0x7FC0 (bf16) or 0x7E00 (f16).
  void (*narrow)(uint16_t* to, const float* from, size_t count);
  /// Narrows and widens again, for values that are sent in 16 bits. `to` may be `from`.
  void (*round)(float* to, const float* from, size_t count);
};

struct KernelTable {
  const char* name;
  Arithmetic<float> singles;
  Arithmetic<double> doubles;
  Conversions bf16, f16;
  /// Rounds to bf16 as stochastic.h does. `position` is that of the first element.
  void (*round_at_random)(uint16_t* to, const float* from, size_t count, uint32_t key,
                          uint32_t position);

  /// Join and split master weights. A bf16 parameter is its fp32 master weight rounded half away
  /// from zero. With its remainder of 16 bits it gives the whole master weight again, but every NaN
  /// becomes 0x7FC00000.
  void (*join_remainder)(float* master, const uint16_t* param, const uint16_t* remainder,
                         size_t count);
  void (*split_remainder)(uint16_t* param, uint16_t* remainder, const float* master, size_t count);

  template <class Real>
  const Arithmetic<Real>& in() const {
    if constexpr (std::is_same_v<Real, double>)
      return doubles;
    else
      return singles;
  }
  const Conversions& half(DType type) const { return type == DType::bf16 ? bf16 : f16; }

  /// Returns the kernel that adds inputs of a floating type to sums of f32 or f64.
  ReduceKernel reduction(DType sum, DType from, Norm norm) const {
    const ReductionsByType& of = sum == DType::f64 ? doubles.reductions : singles.reductions;
    return of[static_cast<size_t>(from)][static_cast<size_t>(norm)];
  }
};

/// Adds a call's inputs to the sums of earlier calls: sums = ((sums + in[0]) + in[1]) + ... for
/// `count` elements, in the type of the sums.
inline void fold(const KernelTable& kernels, DType sum, DType from, void* sums,
                 std::span<const void* const> in, size_t count) {
  constexpr size_t kTogether = 2048;
  alignas(64) std::byte wide[kTogether * sizeof(double)];
  for (size_t done = 0; done < count; done += kTogether) {
    const size_t part = std::min(kTogether, count - done);
    std::byte* const to = static_cast<std::byte*>(sums) + done * size_of(sum);
    for (const void* const source : in) {
      const void* const more = static_cast<const std::byte*>(source) + done * size_of(from);
      if (from != sum) kernels.reduction(sum, from, Norm::none)(wide, &more, 1, part);
      const void* const both[2] = {to, from == sum ? more : wide};
      kernels.reduction(sum, sum, Norm::none)(to, both, 2, part);
    }
  }
}

/// Returns the table of an instruction set. This machine must be able to run it.
const KernelTable& kernel_table(Isa isa);

/// Return the instruction sets that have tables, and those of them that this machine can run, from
/// scalar upward.
std::span<const Isa> compiled_isas();
std::vector<Isa> available_isas();
Isa best_isa();
inline const KernelTable& kernels() { return kernel_table(best_isa()); }

}  // namespace zero
