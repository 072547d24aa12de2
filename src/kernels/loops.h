// SPDX-License-Identifier: Apache-2.0
// The loops over elements. Included once by each instruction set's file, inside that file's namespace and
// its target region, so nothing is included from here: a standard header's inline function compiled
// there would serve the whole program. Plain loops in the order of the contract; compilers vectorize them.

#ifdef __FAST_MATH__
#error "libzero's kernels promise bits: compile them without -ffast-math"
#endif

inline constexpr size_t kLanes = 8;
inline constexpr size_t kSumBlock = 1024;  // elements; the partial sums stay in the L1 cache

// Partial sums go through a block of our own: `out` may be any input, so an early store would destroy it.
static void sum_block(float* out, const float* const* in, int ranks, size_t first, size_t count) {
  float block[kSumBlock];
  int rank = 0;
  if (ranks >= 4) {
    const float *a = in[0] + first, *b = in[1] + first, *c = in[2] + first, *d = in[3] + first;
    for (size_t i = 0; i < count; ++i) block[i] = ((a[i] + b[i]) + c[i]) + d[i];
    rank = 4;
  } else if (ranks >= 2) {
    const float *a = in[0] + first, *b = in[1] + first;
    for (size_t i = 0; i < count; ++i) block[i] = a[i] + b[i];
    rank = 2;
  } else {
    __builtin_memcpy(block, in[0] + first, count * sizeof(float));
    rank = 1;
  }
  for (; rank + 2 <= ranks; rank += 2) {
    const float *a = in[rank] + first, *b = in[rank + 1] + first;
    for (size_t i = 0; i < count; ++i) block[i] = (block[i] + a[i]) + b[i];
  }
  if (rank < ranks) {
    const float* a = in[rank] + first;
    for (size_t i = 0; i < count; ++i) block[i] = block[i] + a[i];
  }
  __builtin_memcpy(out + first, block, count * sizeof(float));
}

static void sum_in_rank_order(float* out, const float* const* in, int ranks, size_t count) {
  if (ranks == 1 && out == in[0]) return;
  for (size_t first = 0; first < count; first += kSumBlock) {
    const size_t left = count - first;
    sum_block(out, in, ranks, first, left < kSumBlock ? left : kSumBlock);
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

// Without their sign, floats order like their bits, and NaN lies above infinity: an integer maximum is
// exact, propagates NaN, and needs no lanes.
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

// The runs of an update never overlap. Compilers believe that of parameters only, so every loop is a
// function of its own, and works on copies of the elements.

template <bool amsgrad>
static void adamw_loop(float* __restrict params, const float* __restrict sums,
                       float* __restrict exp_avgs, float* __restrict exp_avg_sqs,
                       float* __restrict max_exp_avg_sqs, size_t count, const Scalars& shared) {
  const Scalars scalars = shared;
  for (size_t i = 0; i < count; ++i) {
    float param = params[i], exp_avg = exp_avgs[i], exp_avg_sq = exp_avg_sqs[i];
    float max_exp_avg_sq = amsgrad ? max_exp_avg_sqs[i] : 0;
    rules::adamw(param, sums[i] * scalars.factor, exp_avg, exp_avg_sq,
                 amsgrad ? &max_exp_avg_sq : nullptr, scalars.value);
    params[i] = param;
    exp_avgs[i] = exp_avg;
    exp_avg_sqs[i] = exp_avg_sq;
    if (amsgrad) max_exp_avg_sqs[i] = max_exp_avg_sq;
  }
}

static void update_adamw(const UpdateRun& run, const Scalars& scalars) {
  const auto loop = scalars.flag[rules::Adam::amsgrad] ? adamw_loop<true> : adamw_loop<false>;
  loop(run.param, run.grad, run.slots[0], run.slots[1], run.slots[2], run.count, scalars);
}

template <bool amsgrad, bool decays>
static void adam_loop(float* __restrict params, const float* __restrict sums,
                      float* __restrict exp_avgs, float* __restrict exp_avg_sqs,
                      float* __restrict max_exp_avg_sqs, size_t count, const Scalars& shared) {
  const Scalars scalars = shared;
  for (size_t i = 0; i < count; ++i) {
    float param = params[i], exp_avg = exp_avgs[i], exp_avg_sq = exp_avg_sqs[i];
    float max_exp_avg_sq = amsgrad ? max_exp_avg_sqs[i] : 0;
    rules::adam(param, sums[i] * scalars.factor, exp_avg, exp_avg_sq,
                amsgrad ? &max_exp_avg_sq : nullptr, scalars.value, decays);
    params[i] = param;
    exp_avgs[i] = exp_avg;
    exp_avg_sqs[i] = exp_avg_sq;
    if (amsgrad) max_exp_avg_sqs[i] = max_exp_avg_sq;
  }
}

static void update_adam(const UpdateRun& run, const Scalars& scalars) {
  const bool decays = scalars.flag[rules::Adam::decays];
  auto* loop = decays ? adam_loop<false, true> : adam_loop<false, false>;
  if (scalars.flag[rules::Adam::amsgrad]) {
    loop = decays ? adam_loop<true, true> : adam_loop<true, false>;
  }
  loop(run.param, run.grad, run.slots[0], run.slots[1], run.slots[2], run.count, scalars);
}

template <bool decays, bool has_momentum, bool first, bool nesterov>
static void sgd_loop(float* __restrict params, const float* __restrict sums,
                     float* __restrict buffers, size_t count, const Scalars& shared) {
  const Scalars scalars = shared;
  for (size_t i = 0; i < count; ++i) {
    float param = params[i];
    float buffer = has_momentum && !first ? buffers[i] : 0;
    rules::sgd(param, sums[i] * scalars.factor, has_momentum ? &buffer : nullptr, scalars.value,
               decays, first, nesterov);
    params[i] = param;
    if (has_momentum) buffers[i] = buffer;
  }
}

template <bool decays>
static auto sgd_loop_for(const bool* flag) {
  using rules::Sgd;
  if (!flag[Sgd::has_momentum]) return sgd_loop<decays, false, false, false>;
  if (flag[Sgd::nesterov]) {
    return flag[Sgd::first] ? sgd_loop<decays, true, true, true> : sgd_loop<decays, true, false, true>;
  }
  return flag[Sgd::first] ? sgd_loop<decays, true, true, false> : sgd_loop<decays, true, false, false>;
}

static void update_sgd(const UpdateRun& run, const Scalars& scalars) {
  const bool* flag = scalars.flag;
  const auto loop = flag[rules::Sgd::decays] ? sgd_loop_for<true>(flag) : sgd_loop_for<false>(flag);
  loop(run.param, run.grad, run.slots[0], run.count, scalars);
}

// In the order of KernelTable, after its name; updates in the order of ZERO_OPTIMIZER_*.
static constexpr KernelTable table(const char* name) {
  return {name,    sum_in_rank_order, count_nonfinite, sum_abs, sum_squares, powers::sum_powers,
          max_abs, {update_adamw, update_adam, update_sgd}};
}
