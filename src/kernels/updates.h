// SPDX-License-Identifier: Apache-2.0
// Defines the update loop for every rule, in fp32 and fp64: it sums, counts, updates and stores one
// cache line at a time. The file of each instruction set includes this after loops.h, in the same
// way.

// A rule with known flags, given as bits, so that the compiler removes all its branches.
template <class Of, size_t flags>
struct Element {
  static_assert(kMaxFlags == 4);
  static constexpr bool flag[] = {(flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0,
                                  (flags & 8) != 0};
  static constexpr unsigned used = Of::used(flag);
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real* slot,
                                                           const Real* value) {
    Of::update(param, gradient, slot, value, flag);
  }
};

// The arrays of an update never overlap. Compilers believe that only of function parameters, so the
// slots are passed as such.
template <class Element, size_t... s, class Real, class... Slot>
static inline __attribute__((always_inline)) void update_one(Numbers<s...>, Real* __restrict params,
                                                             size_t i, Real sum,
                                                             const RoundedScalars<Real>& scalars,
                                                             Slot* __restrict... slots) {
  Real param = params[i], slot[sizeof...(s)] = {};
  ((Element::used >> s & 1 ? void(slot[s] = slots[i]) : void()), ...);
  Element::update(param, sum * scalars.factor, slot, scalars.value);
  params[i] = param;
  ((Element::used >> s & 1 ? void(slots[i] = slot[s]) : void()), ...);
}

// The loops of a rule, one for each combination of its flags.
template <class Of, class Real, class Slots = std::make_index_sequence<kSlotsOf<Of>>,
          class Flags = std::make_index_sequence<size_t{1} << Of::flags>>
struct Loops;

template <class Of, class Real, size_t... s, size_t... flags>
struct Loops<Of, Real, Numbers<s...>, Numbers<flags...>> {
  template <size_t>
  using Slot = Real;

  template <class Element>
  static uint64_t loop(Real* __restrict params, const Real* grads, const Real* const* others,
                       int other_count, size_t count, const Scalars& shared,
                       Slot<s>* __restrict... slots) {
    const RoundedScalars<Real> scalars(shared);
    uint32_t found[kLine<Real>] = {};  // a run is far shorter than 2^32 lines
    size_t i = 0;
    for (; i + kLine<Real> <= count; i += kLine<Real>) {
      Line<Real> line;
      sum_line(line, grads, others, other_count, i);
      Real sum[kLine<Real>];
      store(sum, line);
      ask_for(params + i, 2);
      ((Element::used >> s & 1 ? ask_for(slots + i, 3 + s) : void()), ...);
      ZERO_ROLLED
      for (size_t k = 0; k < kLine<Real>; ++k) {
        found[k] += is_nonfinite(sum[k]);
        update_one<Element>(Numbers<s...>(), params, i + k, sum[k], scalars, slots...);
      }
    }
    uint64_t total = 0;
    for (size_t k = 0; k < kLine<Real>; ++k) total += found[k];
    for (; i < count; ++i) {
      Real sum = grads[i];
      for (int r = 0; r < other_count; ++r) sum = sum + others[r][i];
      total += is_nonfinite(sum);
      update_one<Element>(Numbers<s...>(), params, i, sum, scalars, slots...);
    }
    return total;
  }

  static uint64_t update(const UpdateRunOf<Real>& run, const Scalars& scalars) {
    static constexpr decltype(&loop<Element<Of, 0>>) loops[] = {loop<Element<Of, flags>>...};
    size_t given = 0;
    for (size_t i = 0; i < Of::flags; ++i) given |= size_t{scalars.flag[i]} << i;
    return loops[given](run.param, run.grad, run.others, run.other_count, run.count, scalars,
                        run.slots[s]...);
  }
};

// Sums the squares of one piece, line by line.
template <bool decides, class Real>
struct LambSquares {
  static constexpr bool decays = decides;
  LineReducer<Real, LanesNorm<Real, true>> param, direction;

  // Processes a line of which `width` elements exist. The others are zeros, which change no norm.
  inline __attribute__((always_inline)) void line(const Real* params, const Real* sum,
                                                  Real* __restrict as, Real* __restrict bs,
                                                  Real* out, size_t width, uint32_t* found,
                                                  const RoundedScalars<Real>& scalars) {
    Real directions[kLine<Real>] = {}, last[kLine<Real>] = {};
    ZERO_ROLLED
    for (size_t k = 0; k < width; ++k) {
      found[k] += is_nonfinite(sum[k]);
      Real slot[] = {as[k], bs[k]}, turned = params[k];
      rules::Lamb::update(turned, sum[k] * scalars.factor, slot, scalars.value, &decays);
      directions[k] = turned;
      as[k] = slot[0];
      bs[k] = slot[1];
    }
    Line<Real> line;
    load(line, directions);
    direction.add(line);
    if (width == kLine<Real>) {
      store(out, line);
      load(line, params);
    } else {
      __builtin_memcpy(out, directions, width * sizeof(Real));
      __builtin_memcpy(last, params, width * sizeof(Real));
      load(line, last);
    }
    param.add(line);
  }
};

template <bool decays, class Real>
static Squares measure_lamb_piece(const UpdateRunOf<Real>& run, Real* out, size_t i, size_t end,
                                  uint32_t* found, const RoundedScalars<Real>& scalars) {
  LambSquares<decays, Real> squares;
  Real *const as = run.slots[0], *const bs = run.slots[1];
  for (; i + kLine<Real> <= end; i += kLine<Real>) {
    Line<Real> line;
    sum_line(line, run.grad, run.others, run.other_count, i);
    Real sum[kLine<Real>];
    store(sum, line);
    ask_for(run.param + i, 2);
    ask_for(as + i, 3);
    ask_for(bs + i, 4);
    squares.line(run.param + i, sum, as + i, bs + i, out + i, kLine<Real>, found, scalars);
  }
  if (i < end) {
    Real sum[kLine<Real>] = {};
    for (size_t k = 0; i + k < end; ++k) {
      sum[k] = run.grad[i + k];
      for (int r = 0; r < run.other_count; ++r) sum[k] = sum[k] + run.others[r][i + k];
    }
    squares.line(run.param + i, sum, as + i, bs + i, out + i, end - i, found, scalars);
  }
  return {squares.param.norm.value(), squares.direction.norm.value()};
}

template <bool decays, class Real>
static uint64_t measure_lamb_loop(const UpdateRunOf<Real>& run, Real* out, const Scalars& shared,
                                  size_t head, size_t block, Squares* pieces) {
  const RoundedScalars<Real> scalars(shared);
  uint32_t found[kLine<Real>] = {};
  for (size_t begin = 0, end = head; begin < run.count; begin = end, end += block) {
    if (end > run.count) end = run.count;
    *pieces++ = measure_lamb_piece<decays>(run, out, begin, end, found, scalars);
  }
  uint64_t total = 0;
  for (size_t k = 0; k < kLine<Real>; ++k) total += found[k];
  return total;
}

template <class Real>
static uint64_t measure_lamb(const UpdateRunOf<Real>& run, Real* out, const Scalars& scalars,
                             size_t head, size_t block, Squares* pieces) {
  return scalars.flag[rules::Lamb::decays]
             ? measure_lamb_loop<true>(run, out, scalars, head, block, pieces)
             : measure_lamb_loop<false>(run, out, scalars, head, block, pieces);
}

template <class Real>
static void step_lamb(Real* __restrict params, const Real* __restrict directions, size_t count,
                      const Scalars& shared) {
  const RoundedScalars<Real> scalars(shared);
  size_t i = 0;
  for (; i + kLine<Real> <= count; i += kLine<Real>) {
    ask_for(params + i, 0);
    ask_for(directions + i, 1);
    ZERO_ROLLED
    for (size_t k = 0; k < kLine<Real>; ++k)
      params[i + k] = rules::Lamb::stepped(params[i + k], directions[i + k], scalars.value);
  }
  for (; i < count; ++i) params[i] = rules::Lamb::stepped(params[i], directions[i], scalars.value);
}

template <class Of, class Real>
static constexpr UpdateKernelOf<Real> update_of() {
  if constexpr (kUpdatesElements<Of>) return Loops<Of, Real>::update;
  return nullptr;
}

template <class Real, class List>
struct Updates;

/// In the order of the list.
template <class Real, class... Rules>
struct Updates<Real, RuleList<Rules...>> {
  static constexpr UpdateKernelOf<Real> kernels[] = {update_of<Rules, Real>()...};
};

template <class Real>
static constexpr Arithmetic<Real> arithmetic() {
  return {.reductions = reductions_by_type<Real>(),
          .sum_powers = sum_powers<Real>,
          .update = Updates<Real, AllRules>::kernels,
          .lamb = {measure_lamb<Real>, step_lamb<Real>}};
}

template <class Half>
static constexpr Conversions conversions() {
  return {.widen = widen<Half>, .narrow = narrow<Half>, .round = round_through<Half>};
}

static constexpr KernelTable table(const char* name) {
  return {.name = name,
          .singles = arithmetic<float>(),
          .doubles = arithmetic<double>(),
          .bf16 = conversions<Bf16>(),
          .f16 = conversions<F16>(),
          .round_at_random = round_at_random,
          .join_remainder = join_remainder,
          .split_remainder = split_remainder};
}
