// SPDX-License-Identifier: Apache-2.0
// Defines one loop that sums a piece over ranks, counts sums that are not finite, and computes the
// piece's part of a norm. Each instruction set's file includes this after loops.h, in the same way.

// Norms are computed in fp64. Element i of a piece is added to lane i % 8, and lanes are combined
// at the end. The last line of a piece is filled up with zeros, which change no lane.

template <class Real>
struct NoNorm {
  template <size_t v>
  inline __attribute__((always_inline)) void add(const Vector<Real, kWidth<Real>>&) {}
  double value() const { return 0; }
};

using WideVector = Vector<double, kWidth<double>>;

/// Widens the lower (0) or upper (1) half of a vector to fp64.
template <size_t half, size_t... k>
static inline __attribute__((always_inline)) void widen_half(WideVector& out,
                                                             const Vector<float, kWidth<float>>& in,
                                                             Numbers<k...>) {
  constexpr size_t first = half * sizeof...(k);
#if !defined(__clang__) && __GNUC__ < 12  // has no __builtin_shufflevector
  Vector<float, sizeof...(k)> part;
  ((part[k] = in[first + k]), ...);
#else
  const Vector<float, sizeof...(k)> part = __builtin_shufflevector(in, in, (first + k)...);
#endif
  out = __builtin_convertvector(part, WideVector);
}

struct Lanes {
  static constexpr size_t kLanes = 8;
  static constexpr size_t kLanesInOne = kWidth<double>;
  static constexpr size_t kWides = kLanes / kLanesInOne;

  double lane(size_t k) const { return lanes[k / kLanesInOne][k % kLanesInOne]; }
  double value() const {
    return ((lane(0) + lane(4)) + (lane(2) + lane(6))) +
           ((lane(1) + lane(5)) + (lane(3) + lane(7)));
  }

  WideVector lanes[kWides] = {};
};

template <class Real>
inline constexpr auto kMagnitudes = static_cast<SignedWord<Real>>(kMagnitudeWord<Real>);

template <class Real, bool squares>
struct LanesNorm : Lanes {
  using Values = Vector<Real, kWidth<Real>>;

  template <size_t v>
  inline __attribute__((always_inline)) void add(const Values& values) {
    Values term = values;
    if constexpr (!squares) term = (Values)((Bits<Real>)values & kMagnitudes<Real>);
    if constexpr (sizeof(Real) == sizeof(double)) {
      add_wide<v>(term);
    } else {
      constexpr std::make_index_sequence<kWidth<double>> places;
      WideVector wide;
      widen_half<0>(wide, term, places);
      add_wide<2 * v>(wide);
      widen_half<1>(wide, term, places);
      add_wide<2 * v + 1>(wide);
    }
  }
  template <size_t w>
  inline __attribute__((always_inline)) void add_wide(const WideVector& wide) {
    WideVector& lane = lanes[w % kWides];
    if constexpr (squares) {
      lane = lane + wide * wide;
    } else {
      lane = lane + wide;
    }
  }
};

// Without their sign, numbers have the order of their bits, and NaN is above infinity. So an
// integer maximum is exact and propagates NaN.
template <class Real>
struct LargestNorm {
  template <size_t v>
  inline __attribute__((always_inline)) void add(const Vector<Real, kWidth<Real>>& values) {
    const Bits<Real> bits = (Bits<Real>)values & kMagnitudes<Real>;
    largest = bits > largest ? bits : largest;
  }
  double value() const {
    SignedWord<Real> bits = 0;
    for (size_t k = 0; k < kWidth<Real>; ++k) bits = largest[k] > bits ? largest[k] : bits;
    return __builtin_bit_cast(Real, bits);
  }

  Bits<Real> largest = {};
};

template <class Real, class Norm>
struct LineReducer {
  static constexpr auto kInfinity = static_cast<SignedWord<Real>>(kInfinityWord<Real>);

  template <size_t v = 0>
  inline __attribute__((always_inline)) void add(const Line<Real>& sum) {
    const Bits<Real> bits = (Bits<Real>)sum.part[v] & kInfinity;
    nonfinite = nonfinite - (bits == kInfinity);  // true is -1
    norm.template add<v>(sum.part[v]);
    if constexpr (v + 1 < kVectors) add<v + 1>(sum);
  }
  Reduction result() const {
    uint64_t total = 0;
    for (size_t k = 0; k < kWidth<Real>; ++k) total += static_cast<uint32_t>(nonfinite[k]);
    return {norm.value(), total};
  }

  Norm norm;
  Bits<Real> nonfinite = {};  // a piece is far shorter than 2^31 lines
};

template <class Real, class From, class Norm>
static Reduction reduce(void* sums, const void* const* inputs, int ranks, size_t count) {
  Real* const out = static_cast<Real*>(sums);
  const From* const first = static_cast<const From*>(inputs[0]);
  LineReducer<Real, Norm> reducer;
  const bool stores = ranks > 1 || sums != inputs[0];
  Line<Real> sum;
  size_t i = 0;
  for (; i + kLine<Real> <= count; i += kLine<Real>) {
    sum_line(sum, first, inputs + 1, ranks - 1, i);
    reducer.add(sum);
    if (stores) store(out + i, sum);
  }
  if (i < count) {
    From last[kLine<Real>] = {};
    Real tail[kLine<Real>];
    Line<Real> other;
    __builtin_memcpy(last, first + i, (count - i) * sizeof(From));
    load(sum, last);
    for (int r = 1; r < ranks; ++r) {
      __builtin_memcpy(last, static_cast<const From*>(inputs[r]) + i, (count - i) * sizeof(From));
      load(other, last);
      add(sum, other);
    }
    reducer.add(sum);
    store(tail, sum);
    if (stores) __builtin_memcpy(out + i, tail, (count - i) * sizeof(Real));
  }
  return reducer.result();
}

template <class Real, class From>
static constexpr Reductions reductions() {
  return {{reduce<Real, From, NoNorm<Real>>, reduce<Real, From, LanesNorm<Real, false>>,
           reduce<Real, From, LanesNorm<Real, true>>, reduce<Real, From, LargestNorm<Real>>}};
}

template <class Real>
static constexpr ReductionsByType reductions_by_type() {
  ReductionsByType of{};
  of[static_cast<size_t>(DType::f32)] = reductions<Real, float>();
  of[static_cast<size_t>(DType::f64)] = reductions<Real, double>();
  of[static_cast<size_t>(DType::bf16)] = reductions<Real, Bf16>();
  of[static_cast<size_t>(DType::f16)] = reductions<Real, F16>();
  return of;
}
