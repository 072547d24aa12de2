// SPDX-License-Identifier: Apache-2.0
// One loop sums a piece over ranks, counts what is not finite, and takes the piece's part of a
// norm. Included by each instruction set's file behind loops.h, and in the same way.

// Norms in fp64: element i of a piece goes to lane i % 8; lanes are combined at the end. A piece's
// last line is filled up with zeros, which change no lane.

template <class Real>
struct NoNorm {
  template <size_t v>
  inline __attribute__((always_inline)) void add(const typename Vectors<Real>::Vector&) {}
  double value() const { return 0; }
};

typedef Few<kWidth<double>>::Floats HalfVector;
typedef Vectors<double>::Vector WideVector;

/// The lower (0) or upper half of a vector in fp64.
template <int half, class AnyVector>
static inline __attribute__((always_inline)) void widen_half(WideVector& out, const AnyVector& in) {
  constexpr int width = static_cast<int>(kWidth<float>);
  constexpr int first = half * width / 2;
  HalfVector part;
  if constexpr (width == 4) {
    part = __builtin_shufflevector(in, in, first, first + 1);
  } else if constexpr (width == 8) {
    part = __builtin_shufflevector(in, in, first, first + 1, first + 2, first + 3);
  } else {
    part = __builtin_shufflevector(in, in, first, first + 1, first + 2, first + 3, first + 4,
                                   first + 5, first + 6, first + 7);
  }
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

template <class Real, bool squares>
struct LanesNorm : Lanes {
  using Vector = typename Vectors<Real>::Vector;
  using Bits = typename Vectors<Real>::Bits;

  template <size_t v>
  inline __attribute__((always_inline)) void add(const Vector& values) {
    Vector term = values;
    if constexpr (!squares) term = (Vector)((Bits)values & Vectors<Real>::kMagnitude);
    if constexpr (sizeof(Real) == sizeof(double)) {
      add_wide<v>(term);
    } else {
      WideVector wide;
      widen_half<0>(wide, term);
      add_wide<2 * v>(wide);
      widen_half<1>(wide, term);
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

// Without their sign, numbers order like their bits, and NaN lies above infinity: an integer
// maximum is exact and propagates NaN.
template <class Real>
struct LargestNorm {
  using Bits = typename Vectors<Real>::Bits;

  template <size_t v>
  inline __attribute__((always_inline)) void add(const typename Vectors<Real>::Vector& values) {
    const Bits bits = (Bits)values & Vectors<Real>::kMagnitude;
    largest = bits > largest ? bits : largest;
  }
  double value() const {
    typename Vectors<Real>::Word bits = 0;
    for (size_t k = 0; k < kWidth<Real>; ++k) bits = largest[k] > bits ? largest[k] : bits;
    Real value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }

  Bits largest = {};
};

template <class Real, class Norm>
struct LineReducer {
  using Bits = typename Vectors<Real>::Bits;

  template <size_t v = 0>
  inline __attribute__((always_inline)) void add(const Line<Real>& sum) {
    const Bits bits = (Bits)sum.part[v] & Vectors<Real>::kInfinity;
    nonfinite = nonfinite - (bits == Vectors<Real>::kInfinity);  // true is -1
    norm.template add<v>(sum.part[v]);
    if constexpr (v + 1 < kVectors) add<v + 1>(sum);
  }
  Reduction result() const {
    uint64_t total = 0;
    for (size_t k = 0; k < kWidth<Real>; ++k) total += static_cast<uint32_t>(nonfinite[k]);
    return {norm.value(), total};
  }

  Norm norm;
  Bits nonfinite = {};  // a piece is far shorter than 2^31 lines
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
static constexpr Sums sums() {
  return {.of_f32 = reductions<Real, float>(),
          .of_f64 = reductions<Real, double>(),
          .of_bf16 = reductions<Real, Bf16>(),
          .of_f16 = reductions<Real, F16>()};
}
