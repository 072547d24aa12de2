// SPDX-License-Identifier: Apache-2.0
// The loop that updates, for every rule: it sums, counts, updates and stores a cache line at a
// time. Included by each instruction set's file behind loops.h, and in the same way.

// A rule's formula on copies of one element's values; `a`, `b`, `c` are its slots, of which the
// bits `used` are read and written.

template <bool amsgrad>
struct AdamwElement {
  static constexpr unsigned used = amsgrad ? 0b111 : 0b011;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float& c, const Scalars& s) {
    rules::adamw(param, gradient, a, b, amsgrad ? &c : nullptr, s.value);
  }
};

template <bool amsgrad, bool decays>
struct AdamElement {
  static constexpr unsigned used = amsgrad ? 0b111 : 0b011;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float& c, const Scalars& s) {
    rules::adam(param, gradient, a, b, amsgrad ? &c : nullptr, s.value, decays);
  }
};

template <bool decays, bool has_momentum, bool first, bool nesterov>
struct SgdElement {
  static constexpr unsigned used = has_momentum ? 0b1 : 0b0;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float&, float&, const Scalars& s) {
    rules::sgd(param, gradient, has_momentum ? &a : nullptr, s.value, decays, first, nesterov);
  }
};

template <bool decays, bool has_momentum, bool centered>
struct RmspropElement {
  static constexpr unsigned used = 0b001 | (has_momentum ? 0b010 : 0) | (centered ? 0b100 : 0);
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float& c, const Scalars& s) {
    rules::rmsprop(param, gradient, a, has_momentum ? &b : nullptr, centered ? &c : nullptr,
                   s.value, decays);
  }
};

template <bool decays, bool first>
struct AdagradElement {
  static constexpr unsigned used = 0b1;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float&, float&, const Scalars& s) {
    rules::adagrad(param, gradient, a, s.value, decays, first);
  }
};

template <bool...>
struct LionElement {
  static constexpr unsigned used = 0b1;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float&, float&, const Scalars& s) {
    rules::lion(param, gradient, a, s.value);
  }
};

template <bool decays>
struct AdamaxElement {
  static constexpr unsigned used = 0b11;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float&, const Scalars& s) {
    rules::adamax(param, gradient, a, b, s.value, decays);
  }
};

template <bool decays>
struct AdadeltaElement {
  static constexpr unsigned used = 0b11;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float&, const Scalars& s) {
    rules::adadelta(param, gradient, a, b, s.value, decays);
  }
};

template <bool decays, bool rectified>
struct RadamElement {
  static constexpr unsigned used = 0b11;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float&, const Scalars& s) {
    rules::radam(param, gradient, a, b, s.value, decays, rectified);
  }
};

template <bool decays>
struct NadamElement {
  static constexpr unsigned used = 0b11;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float&, const Scalars& s) {
    rules::nadam(param, gradient, a, b, s.value, decays);
  }
};

template <bool first>
struct RpropElement {
  static constexpr unsigned used = 0b11;
  static inline __attribute__((always_inline)) void update(float& param, float gradient, float& a,
                                                           float& b, float&, const Scalars& s) {
    rules::rprop(param, gradient, a, b, s.value, first);
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
  if (Element::used & 1) a = as[i];
  if (Element::used & 2) b = bs[i];
  if (Element::used & 4) c = cs[i];
  Element::update(param, sum * scalars.factor, a, b, c, scalars);
  params[i] = param;
  if (Element::used & 1) as[i] = a;
  if (Element::used & 2) bs[i] = b;
  if (Element::used & 4) cs[i] = c;
}

template <class Element>
static uint64_t update_loop(float* __restrict params, float* __restrict as, float* __restrict bs,
                            float* __restrict cs, const float* grads, const float* const* others,
                            int other_count, size_t count, const Scalars& shared) {
  const Scalars scalars = shared;
  uint32_t found[kLine] = {};  // a run is far shorter than 2^32 lines
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    Line line;
    sum_line(line, grads, others, other_count, i);
    float sum[kLine];
    store(sum, line);
    ask_for(params + i, 2);
    if (Element::used & 1) ask_for(as + i, 3);
    if (Element::used & 2) ask_for(bs + i, 4);
    if (Element::used & 4) ask_for(cs + i, 5);
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

/// Flags that are known at run time, one after the other, become the arguments of an Element.
template <template <bool...> class Element, bool... known>
static uint64_t walk(const UpdateRun& run, const Scalars& scalars) {
  return update_loop<Element<known...>>(run.param, run.slots[0], run.slots[1], run.slots[2],
                                        run.grad, run.others, run.other_count, run.count, scalars);
}

template <template <bool...> class Element, bool... known, class... Rest>
static uint64_t walk(const UpdateRun& run, const Scalars& scalars, bool flag, Rest... rest) {
  return flag ? walk<Element, known..., true>(run, scalars, rest...)
              : walk<Element, known..., false>(run, scalars, rest...);
}

static uint64_t update_adamw(const UpdateRun& run, const Scalars& scalars) {
  return walk<AdamwElement>(run, scalars, scalars.flag[rules::Adam::amsgrad]);
}

static uint64_t update_adam(const UpdateRun& run, const Scalars& scalars) {
  using rules::Adam;
  const bool* flag = scalars.flag;
  return walk<AdamElement>(run, scalars, flag[Adam::amsgrad], flag[Adam::decays]);
}

static uint64_t update_sgd(const UpdateRun& run, const Scalars& scalars) {
  using rules::Sgd;
  const bool* flag = scalars.flag;
  return walk<SgdElement>(run, scalars, flag[Sgd::decays], flag[Sgd::has_momentum],
                          flag[Sgd::first], flag[Sgd::nesterov]);
}

static uint64_t update_rmsprop(const UpdateRun& run, const Scalars& scalars) {
  using rules::Rmsprop;
  const bool* flag = scalars.flag;
  return walk<RmspropElement>(run, scalars, flag[Rmsprop::decays], flag[Rmsprop::has_momentum],
                              flag[Rmsprop::centered]);
}

static uint64_t update_adagrad(const UpdateRun& run, const Scalars& scalars) {
  using rules::Adagrad;
  const bool* flag = scalars.flag;
  return walk<AdagradElement>(run, scalars, flag[Adagrad::decays], flag[Adagrad::first]);
}

static uint64_t update_lion(const UpdateRun& run, const Scalars& scalars) {
  return walk<LionElement>(run, scalars);
}

static uint64_t update_adamax(const UpdateRun& run, const Scalars& scalars) {
  return walk<AdamaxElement>(run, scalars, scalars.flag[rules::Adamax::decays]);
}

static uint64_t update_adadelta(const UpdateRun& run, const Scalars& scalars) {
  return walk<AdadeltaElement>(run, scalars, scalars.flag[rules::Adadelta::decays]);
}

static uint64_t update_radam(const UpdateRun& run, const Scalars& scalars) {
  using rules::Radam;
  const bool* flag = scalars.flag;
  return walk<RadamElement>(run, scalars, flag[Radam::decays], flag[Radam::rectified]);
}

static uint64_t update_nadam(const UpdateRun& run, const Scalars& scalars) {
  return walk<NadamElement>(run, scalars, scalars.flag[rules::Nadam::decays]);
}

static uint64_t update_rprop(const UpdateRun& run, const Scalars& scalars) {
  return walk<RpropElement>(run, scalars, scalars.flag[rules::Rprop::first]);
}

// Reductions in the order of Norm, updates in the order of ZERO_OPTIMIZER_*.
static constexpr KernelTable table(const char* name) {
  return {name,
          {reduce<NoNorm>, reduce<LanesNorm<false>>, reduce<LanesNorm<true>>, reduce<LargestNorm>},
          powers::sum_powers,
          {update_adamw, update_adam, update_sgd, update_rmsprop, update_adagrad, update_lion,
           update_adamax, update_adadelta, update_radam, update_nadam, update_rprop}};
}
