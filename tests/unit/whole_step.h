// SPDX-License-Identifier: Apache-2.0
// A step of a whole tensor with the kernels, including the trust ratio if the rule has one.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/kernels.h"

namespace zero::test {

template <class Real>
double plain_norm(const Real* values, size_t count) {
  long double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<long double>(values[i]) * values[i];
  return static_cast<double>(std::sqrt(sum));
}

/// Returns the kernel of any rule. LAMB's first kernel counts as an update that replaces the
/// parameter by the direction.
template <class Real>
std::function<uint64_t(const UpdateRunOf<Real>&, const Scalars&)> update_kernel(Isa isa,
                                                                                int32_t optimizer) {
  const KernelTable& kernels = kernel_table(isa);
  if (optimizer != ZERO_OPTIMIZER_LAMB) return kernels.in<Real>().update[optimizer];
  return [&kernels](const UpdateRunOf<Real>& run, const Scalars& scalars) {
    std::vector<Real> directions(run.count);
    Squares squares;
    const uint64_t found = kernels.in<Real>().lamb.measure(run, directions.data(), scalars,
                                                           run.count, run.count, &squares);
    std::copy(directions.begin(), directions.end(), run.param);
    return found;
  };
}

/// `run` has the gradients of one rank, and is the whole tensor.
template <class Real>
uint64_t whole_step(Isa isa, int32_t optimizer, const UpdateRunOf<Real>& run,
                    const StepContext& context) {
  const Rule& rule = *find_rule(optimizer);
  Scalars scalars = rule.prepare(context);
  if (rule.trust == nullptr) return update_kernel<Real>(isa, optimizer)(run, scalars);
  const std::vector<Real> before(run.param, run.param + run.count);
  const double norm = plain_norm(run.param, run.count);
  double direction = plain_norm(run.grad, run.count) * std::fabs(scalars.factor);
  uint64_t nonfinite = 0;
  if (rule.trust->of_update) {
    nonfinite = update_kernel<Real>(isa, optimizer)(run, scalars);
    direction = plain_norm(run.param, run.count);
  }
  scalars.value[rule.trust->scalar] *=
      rule.trust->ratio({context.settings, rule.settings.size()}, norm, direction);
  if (!rule.trust->of_update) return update_kernel<Real>(isa, optimizer)(run, scalars);
  const std::vector<Real> directions(run.param, run.param + run.count);
  std::copy(before.begin(), before.end(), run.param);
  kernel_table(isa).in<Real>().lamb.step(run.param, directions.data(), run.count, scalars);
  return nonfinite;
}

}  // namespace zero::test
