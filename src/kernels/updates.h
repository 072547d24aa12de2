// SPDX-License-Identifier: Apache-2.0
// The loop that updates, for every rule, in fp32 and fp64: it sums, counts, updates and stores a
// cache line at a time. Included by each instruction set's file behind loops.h, and in the same
// way.

// A rule's formula on copies of one element's values; `a`, `b`, `c` are its slots, of which the
// bits `used` are read and written.

template <bool amsgrad>
struct AdamwElement {
  static constexpr unsigned used = amsgrad ? 0b111 : 0b011;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real& c, const Real* value) {
    rules::adamw(param, gradient, a, b, amsgrad ? &c : nullptr, value);
  }
};

template <bool amsgrad, bool decays>
struct AdamElement {
  static constexpr unsigned used = amsgrad ? 0b111 : 0b011;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real& c, const Real* value) {
    rules::adam(param, gradient, a, b, amsgrad ? &c : nullptr, value, decays);
  }
};

template <bool decays, bool has_momentum, bool first, bool nesterov>
struct SgdElement {
  static constexpr unsigned used = has_momentum ? 0b1 : 0b0;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real&, Real&, const Real* value) {
    rules::sgd(param, gradient, has_momentum ? &a : nullptr, value, decays, first, nesterov);
  }
};

template <bool decays, bool has_momentum, bool centered>
struct RmspropElement {
  static constexpr unsigned used = 0b001 | (has_momentum ? 0b010 : 0) | (centered ? 0b100 : 0);
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real& c, const Real* value) {
    rules::rmsprop(param, gradient, a, has_momentum ? &b : nullptr, centered ? &c : nullptr, value,
                   decays);
  }
};

template <bool decays, bool first>
struct AdagradElement {
  static constexpr unsigned used = 0b1;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real&, Real&, const Real* value) {
    rules::adagrad(param, gradient, a, value, decays, first);
  }
};

template <bool...>
struct LionElement {
  static constexpr unsigned used = 0b1;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real&, Real&, const Real* value) {
    rules::lion(param, gradient, a, value);
  }
};

template <bool decays>
struct AdamaxElement {
  static constexpr unsigned used = 0b11;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real&, const Real* value) {
    rules::adamax(param, gradient, a, b, value, decays);
  }
};

template <bool decays>
struct AdadeltaElement {
  static constexpr unsigned used = 0b11;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real&, const Real* value) {
    rules::adadelta(param, gradient, a, b, value, decays);
  }
};

template <bool decays, bool rectified>
struct RadamElement {
  static constexpr unsigned used = 0b11;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real&, const Real* value) {
    rules::radam(param, gradient, a, b, value, decays, rectified);
  }
};

template <bool decays>
struct NadamElement {
  static constexpr unsigned used = 0b11;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real&, const Real* value) {
    rules::nadam(param, gradient, a, b, value, decays);
  }
};

template <bool first>
struct RpropElement {
  static constexpr unsigned used = 0b11;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real& b, Real&, const Real* value) {
    rules::rprop(param, gradient, a, b, value, first);
  }
};

template <bool decays, bool has_momentum, bool first, bool nesterov>
struct LarsElement {
  static constexpr unsigned used = has_momentum ? 0b1 : 0b0;
  template <class Real>
  static inline __attribute__((always_inline)) void update(Real& param, Real gradient, Real& a,
                                                           Real&, Real&, const Real* value) {
    rules::lars(param, gradient, has_momentum ? &a : nullptr, value, decays, first, nesterov);
  }
};

// The runs of an update never overlap. Compilers believe that of parameters only, so the slots are
// such.
template <class Element, class Real>
static inline __attribute__((always_inline)) void update_one(
    Real* __restrict params, Real* __restrict as, Real* __restrict bs, Real* __restrict cs,
    size_t i, Real sum, const RoundedScalars<Real>& scalars) {
  Real param = params[i], a = 0, b = 0, c = 0;
  if (Element::used & 1) a = as[i];
  if (Element::used & 2) b = bs[i];
  if (Element::used & 4) c = cs[i];
  Element::update(param, sum * scalars.factor, a, b, c, scalars.value);
  params[i] = param;
  if (Element::used & 1) as[i] = a;
  if (Element::used & 2) bs[i] = b;
  if (Element::used & 4) cs[i] = c;
}

template <class Element, class Real>
static uint64_t update_loop(Real* __restrict params, Real* __restrict as, Real* __restrict bs,
                            Real* __restrict cs, const Real* grads, const Real* const* others,
                            int other_count, size_t count, const Scalars& shared) {
  const RoundedScalars<Real> scalars(shared);
  uint32_t found[kLine<Real>] = {};  // a run is far shorter than 2^32 lines
  size_t i = 0;
  for (; i + kLine<Real> <= count; i += kLine<Real>) {
    Line<Real> line;
    sum_line(line, grads, others, other_count, i);
    Real sum[kLine<Real>];
    store(sum, line);
    ask_for(params + i, 2);
    if (Element::used & 1) ask_for(as + i, 3);
    if (Element::used & 2) ask_for(bs + i, 4);
    if (Element::used & 4) ask_for(cs + i, 5);
    ZERO_ROLLED
    for (size_t k = 0; k < kLine<Real>; ++k) {
      found[k] += is_nonfinite(sum[k]);
      update_one<Element>(params, as, bs, cs, i + k, sum[k], scalars);
    }
  }
  uint64_t total = 0;
  for (size_t k = 0; k < kLine<Real>; ++k) total += found[k];
  for (; i < count; ++i) {
    Real sum = grads[i];
    for (int r = 0; r < other_count; ++r) sum = sum + others[r][i];
    total += is_nonfinite(sum);
    update_one<Element>(params, as, bs, cs, i, sum, scalars);
  }
  return total;
}

/// Flags that are known at run time, one after the other, become the arguments of an Element.
template <template <bool...> class Element, bool... known, class Real>
static uint64_t walk(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return update_loop<Element<known...>>(run.param, run.slots[0], run.slots[1], run.slots[2],
                                        run.grad, run.others, run.other_count, run.count, scalars);
}

template <template <bool...> class Element, bool... known, class Real, class... Rest>
static uint64_t walk(const UpdateRunOf<Real>& run, const Scalars& scalars, bool flag,
                     Rest... rest) {
  return flag ? walk<Element, known..., true>(run, scalars, rest...)
              : walk<Element, known..., false>(run, scalars, rest...);
}

template <class Real>
static uint64_t update_adamw(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return walk<AdamwElement>(run, scalars, scalars.flag[rules::Adam::amsgrad]);
}

template <class Real>
static uint64_t update_adam(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  using rules::Adam;
  const bool* flag = scalars.flag;
  return walk<AdamElement>(run, scalars, flag[Adam::amsgrad], flag[Adam::decays]);
}

template <class Real>
static uint64_t update_sgd(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  using rules::Sgd;
  const bool* flag = scalars.flag;
  return walk<SgdElement>(run, scalars, flag[Sgd::decays], flag[Sgd::has_momentum],
                          flag[Sgd::first], flag[Sgd::nesterov]);
}

template <class Real>
static uint64_t update_rmsprop(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  using rules::Rmsprop;
  const bool* flag = scalars.flag;
  return walk<RmspropElement>(run, scalars, flag[Rmsprop::decays], flag[Rmsprop::has_momentum],
                              flag[Rmsprop::centered]);
}

template <class Real>
static uint64_t update_adagrad(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  using rules::Adagrad;
  const bool* flag = scalars.flag;
  return walk<AdagradElement>(run, scalars, flag[Adagrad::decays], flag[Adagrad::first]);
}

template <class Real>
static uint64_t update_lion(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return walk<LionElement>(run, scalars);
}

template <class Real>
static uint64_t update_adamax(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return walk<AdamaxElement>(run, scalars, scalars.flag[rules::Adamax::decays]);
}

template <class Real>
static uint64_t update_adadelta(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return walk<AdadeltaElement>(run, scalars, scalars.flag[rules::Adadelta::decays]);
}

template <class Real>
static uint64_t update_radam(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  using rules::Radam;
  const bool* flag = scalars.flag;
  return walk<RadamElement>(run, scalars, flag[Radam::decays], flag[Radam::rectified]);
}

template <class Real>
static uint64_t update_nadam(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return walk<NadamElement>(run, scalars, scalars.flag[rules::Nadam::decays]);
}

template <class Real>
static uint64_t update_rprop(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  return walk<RpropElement>(run, scalars, scalars.flag[rules::Rprop::first]);
}

template <class Real>
static uint64_t update_lars(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  using rules::Lars;
  const bool* flag = scalars.flag;
  return walk<LarsElement>(run, scalars, flag[Lars::decays], flag[Lars::has_momentum],
                           flag[Lars::first], flag[Lars::nesterov]);
}

template <size_t v = 0, class Norm, class Real>
static inline __attribute__((always_inline)) void add_line(Norm& norm, const Line<Real>& line) {
  norm.template add<v>(line.part[v]);
  if constexpr (v + 1 < kVectors) add_line<v + 1>(norm, line);
}

// Of one piece, line by line.
template <bool decays, class Real>
struct LambSquares {
  LanesNorm<Real, true> param, direction;

  // A line of which `width` elements exist: the others are zeros, which change no norm.
  inline __attribute__((always_inline)) void line(const Real* params, const Real* sum,
                                                  Real* __restrict as, Real* __restrict bs,
                                                  Real* out, size_t width, uint32_t* found,
                                                  const RoundedScalars<Real>& scalars) {
    Real directions[kLine<Real>] = {};
    ZERO_ROLLED
    for (size_t k = 0; k < width; ++k) {
      found[k] += is_nonfinite(sum[k]);
      directions[k] = rules::lamb_direction(params[k], sum[k] * scalars.factor, as[k], bs[k],
                                            scalars.value, decays);
    }
    Line<Real> line;
    load(line, directions);
    add_line(direction, line);
    if (width == kLine<Real>) {
      store(out, line);
      load(line, params);
    } else {
      __builtin_memcpy(out, directions, width * sizeof(Real));
      Real last[kLine<Real>] = {};
      __builtin_memcpy(last, params, width * sizeof(Real));
      load(line, last);
    }
    add_line(param, line);
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
  return {squares.param.value(), squares.direction.value()};
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
      params[i + k] = rules::lamb_step(params[i + k], directions[i + k], scalars.value);
  }
  for (; i < count; ++i) params[i] = rules::lamb_step(params[i], directions[i], scalars.value);
}

/// In the order of ZERO_OPTIMIZER_*.
template <class Real>
static constexpr Updates<Real> updates() {
  return {{update_adamw<Real>, update_adam<Real>, update_sgd<Real>, update_rmsprop<Real>,
           update_adagrad<Real>, update_lion<Real>, update_adamax<Real>, update_adadelta<Real>,
           update_radam<Real>, update_nadam<Real>, update_rprop<Real>, nullptr, update_lars<Real>}};
}

static constexpr KernelTable table(const char* name) {
  return {
      .name = name,
      .float_sums = sums<float>(),
      .double_sums = sums<double>(),
      .sum_powers = powers::sum_powers,
      .sum_powers_wide = powers::sum_powers,
      .update = updates<float>(),
      .update_wide = updates<double>(),
      .lamb = {measure_lamb<float>, step_lamb<float>},
      .lamb_wide = {measure_lamb<double>, step_lamb<double>},
      .widen_bf16 = widen<Bf16>,
      .widen_f16 = widen<F16>,
      .narrow_bf16 = narrow<Bf16>,
      .narrow_f16 = narrow<F16>,
      .round_bf16 = round_through<Bf16>,
      .round_f16 = round_through<F16>,
      .join_remainder = join_remainder,
      .split_remainder = split_remainder,
  };
}
