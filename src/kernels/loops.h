// SPDX-License-Identifier: Apache-2.0
// The loops over elements. Included once by each instruction set's file, inside that file's
// namespace and its target region, so nothing is included from here: a standard header's inline
// function compiled there would serve the whole program. Plain loops in the order of the contract;
// compilers vectorize them.

#ifdef __FAST_MATH__
#error "libzero's kernels promise bits: compile them without -ffast-math"
#endif

// ---- Streams: loops take a cache line of each at a time, and ask for it ahead of its use, each
// stream at a distance of its own: at equal distances all of them would cross a page in the same
// turn.

inline constexpr size_t kLine = 16;    // floats in a cache line
inline constexpr size_t kAhead = 512;  // bytes; past the end of an array this asks for nothing
inline constexpr size_t kStagger = 640;

static inline __attribute__((always_inline)) void ask_for(const void* stream, size_t number) {
  __builtin_prefetch(static_cast<const char*>(stream) + kAhead + kStagger * number, 0, 2);
}

/// The sum of a line in rank order. `out` may be any input, so a line is summed before it is
/// stored.
static inline __attribute__((always_inline)) void sum_line(float* sum, const float* first,
                                                           const float* const* others,
                                                           int other_count, size_t i) {
  ask_for(first + i, 0);
  for (size_t k = 0; k < kLine; ++k) sum[k] = first[i + k];
  for (int r = 0; r < other_count; ++r) {
    const float* other = others[r] + i;
    ask_for(other, static_cast<size_t>(r + 1) % 8);
    for (size_t k = 0; k < kLine; ++k) sum[k] = sum[k] + other[k];
  }
}

static void sum_in_rank_order(float* out, const float* const* in, int ranks, size_t count) {
  if (ranks == 1 && out == in[0]) return;
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    float sum[kLine];
    sum_line(sum, in[0], in + 1, ranks - 1, i);
    for (size_t k = 0; k < kLine; ++k) out[i + k] = sum[k];
  }
  for (; i < count; ++i) {
    float sum = in[0][i];
    for (int r = 1; r < ranks; ++r) sum = sum + in[r][i];
    out[i] = sum;
  }
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint64_t count_nonfinite(const float* data, size_t count) {
  uint64_t total = 0;
  for (size_t first = 0; first < count; first += size_t{1} << 30) {
    const size_t left = count - first;
    const size_t chunk = left < size_t{1} << 30 ? left : size_t{1} << 30;
    uint32_t found = 0;  // 32 bits: twice the lanes of the total
    for (size_t i = 0; i < chunk; ++i) {
      found += (bits_of(data[first + i]) & 0x7F800000u) == 0x7F800000u;
    }
    total += found;
  }
  return total;
}

inline constexpr size_t kLanes = 8;

static double combine(const double* lane) {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static double sum_abs(const float* data, size_t count) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += __builtin_fabsf(data[i + lane]);
  }
  for (size_t lane = 0; i < count; ++lane, ++i) lanes[lane] += __builtin_fabsf(data[i]);
  return combine(lanes);
}

static double sum_squares(const float* data, size_t count) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = data[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i < count; ++lane, ++i) {
    const double value = data[i];
    lanes[lane] += value * value;
  }
  return combine(lanes);
}

// Without their sign, floats order like their bits, and NaN lies above infinity: an integer maximum
// is exact, propagates NaN, and needs no lanes.
static double max_abs(const float* data, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t bits = static_cast<int32_t>(bits_of(data[i]) & 0x7FFFFFFFu);
    largest = bits > largest ? bits : largest;
  }
  float value;
  __builtin_memcpy(&value, &largest, sizeof value);
  return value;
}

// ---- Updates: one loop for all rules, which sums, counts, updates and stores a cache line at a
// time.

// A rule's formula on copies of one element's values; `a`, `b`, `c` are its slots.

template <bool amsgrad>
struct AdamwElement {
  static constexpr int slots = amsgrad ? 3 : 2;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float& c, const Scalars& s) {
    rules::adamw(param, gradient, a, b, amsgrad ? &c : nullptr, s.value);
  }
};

template <bool amsgrad, bool decays>
struct AdamElement {
  static constexpr int slots = amsgrad ? 3 : 2;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float& c, const Scalars& s) {
    rules::adam(param, gradient, a, b, amsgrad ? &c : nullptr, s.value, decays);
  }
};

template <bool decays, bool has_momentum, bool first, bool nesterov>
struct SgdElement {
  static constexpr int slots = has_momentum ? 1 : 0;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float&, float&, const Scalars& s) {
    rules::sgd(param, gradient, has_momentum ? &a : nullptr, s.value, decays, first, nesterov);
  }
};

// The runs of an update never overlap. Compilers believe that of parameters only, so the slots are
// such.
template <class Element>
static inline __attribute__((always_inline)) void update_one(float* __restrict params,
                                                             float* __restrict as,
                                                             float* __restrict bs,
                                                             float* __restrict cs, size_t i,
                                                             float sum, const Scalars& scalars) {
  float param = params[i], a = 0, b = 0, c = 0;
  if (Element::slots > 0) a = as[i];
  if (Element::slots > 1) b = bs[i];
  if (Element::slots > 2) c = cs[i];
  Element::update(param, sum * scalars.factor, a, b, c, scalars);
  params[i] = param;
  if (Element::slots > 0) as[i] = a;
  if (Element::slots > 1) bs[i] = b;
  if (Element::slots > 2) cs[i] = c;
}

static inline __attribute__((always_inline)) uint32_t is_nonfinite(float value) {
  return (bits_of(value) & 0x7F800000u) == 0x7F800000u;
}

template <class Element>
static uint64_t update_loop(float* __restrict params, float* __restrict as, float* __restrict bs,
                            float* __restrict cs, const float* grads, const float* const* others,
                            int other_count, size_t count, const Scalars& shared) {
  const Scalars scalars = shared;
  uint32_t found[kLine] = {};  // a run is far shorter than 2^32 lines
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    float sum[kLine];
    sum_line(sum, grads, others, other_count, i);
    ask_for(params + i, 2);
    if (Element::slots > 0) ask_for(as + i, 3);
    if (Element::slots > 1) ask_for(bs + i, 4);
    if (Element::slots > 2) ask_for(cs + i, 5);
#if !defined(__clang__)
#pragma GCC unroll 1  // gcc unrolls the short formulas before it vectorizes, and then does not
#endif
    for (size_t k = 0; k < kLine; ++k) {
      found[k] += is_nonfinite(sum[k]);
      update_one<Element>(params, as, bs, cs, i + k, sum[k], scalars);
    }
  }
  uint64_t total = 0;
  for (size_t k = 0; k < kLine; ++k) total += found[k];
  for (; i < count; ++i) {
    float sum = grads[i];
    for (int r = 0; r < other_count; ++r) sum = sum + others[r][i];
    total += is_nonfinite(sum);
    update_one<Element>(params, as, bs, cs, i, sum, scalars);
  }
  return total;
}

template <class Element>
static uint64_t walk(const UpdateRun& run, const Scalars& scalars) {
  return update_loop<Element>(run.param, run.slots[0], run.slots[1], run.slots[2], run.grad,
                              run.others, run.other_count, run.count, scalars);
}

static uint64_t update_adamw(const UpdateRun& run, const Scalars& scalars) {
  return scalars.flag[rules::Adam::amsgrad] ? walk<AdamwElement<true>>(run, scalars)
                                            : walk<AdamwElement<false>>(run, scalars);
}

static uint64_t update_adam(const UpdateRun& run, const Scalars& scalars) {
  if (scalars.flag[rules::Adam::decays]) {
    return scalars.flag[rules::Adam::amsgrad] ? walk<AdamElement<true, true>>(run, scalars)
                                              : walk<AdamElement<false, true>>(run, scalars);
  }
  return scalars.flag[rules::Adam::amsgrad] ? walk<AdamElement<true, false>>(run, scalars)
                                            : walk<AdamElement<false, false>>(run, scalars);
}

template <bool decays>
static uint64_t walk_sgd(const UpdateRun& run, const Scalars& scalars) {
  using rules::Sgd;
  const bool* flag = scalars.flag;
  if (!flag[Sgd::has_momentum]) return walk<SgdElement<decays, false, false, false>>(run, scalars);
  if (flag[Sgd::nesterov]) {
    return flag[Sgd::first] ? walk<SgdElement<decays, true, true, true>>(run, scalars)
                            : walk<SgdElement<decays, true, false, true>>(run, scalars);
  }
  return flag[Sgd::first] ? walk<SgdElement<decays, true, true, false>>(run, scalars)
                          : walk<SgdElement<decays, true, false, false>>(run, scalars);
}

static uint64_t update_sgd(const UpdateRun& run, const Scalars& scalars) {
  return scalars.flag[rules::Sgd::decays] ? walk_sgd<true>(run, scalars)
                                          : walk_sgd<false>(run, scalars);
}

// In the order of KernelTable, after its name; updates in the order of ZERO_OPTIMIZER_*.
static constexpr KernelTable table(const char* name) {
  return {
      name,        sum_in_rank_order,  count_nonfinite, sum_abs,
      sum_squares, powers::sum_powers, max_abs,         {update_adamw, update_adam, update_sgd}};
}
