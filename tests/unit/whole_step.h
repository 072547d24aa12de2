// SPDX-License-Identifier: Apache-2.0
// A step of a whole tensor by the kernels, with its trust ratio where the rule has one.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/kernels.h"

namespace zero::test {

template <class Real>
double plain_norm(const Real* values, size_t count) {
  long double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<long double>(values[i]) * values[i];
  return static_cast<double>(std::sqrt(sum));
}

/// `run` has the gradients of one rank, and is the whole tensor.
template <class Real>
uint64_t whole_step(const KernelTable& kernels, int32_t optimizer, const UpdateRunOf<Real>& run,
                    const StepContext& context) {
  const Rule& rule = *find_rule(optimizer);
  Scalars scalars = rule.prepare(context);
  const auto update = [&](const UpdateRunOf<Real>& of) {
    return kernels.update_of<Real>(optimizer)(of, scalars);
  };
  if (rule.trust == nullptr) return update(run);
  const double norm = plain_norm(run.param, run.count);
  double direction = plain_norm(run.grad, run.count) * std::fabs(scalars.factor);
  uint64_t nonfinite = 0;
  if (rule.trust->of_update) {
    std::vector<Real> turned(run.param, run.param + run.count);
    UpdateRunOf<Real> moments = run;
    moments.param = turned.data();
    nonfinite = update(moments);
    direction = plain_norm(turned.data(), run.count);
  }
  scalars.value[kTrusted] *= rule.trust->ratio(context.settings, norm, direction);
  if (!rule.trust->of_update) return update(run);
  kernels.step_lamb_of<Real>()(run, scalars);
  return nonfinite;
}

}  // namespace zero::test
