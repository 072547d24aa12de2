// SPDX-License-Identifier: Apache-2.0
// A step of a whole tensor by the kernels, with its trust ratio where the rule has one.
#pragma once

#include <algorithm>
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

/// LAMB's first kernel as if it were an update: the parameter becomes the direction.
template <Isa isa, class Real>
uint64_t turn_by_lamb(const UpdateRunOf<Real>& run, const Scalars& scalars) {
  std::vector<Real> directions(run.count);
  Squares squares;
  const uint64_t found = kernel_table(isa).lamb_of<Real>().measure(run, directions.data(), scalars,
                                                                   run.count, run.count, &squares);
  std::copy(directions.begin(), directions.end(), run.param);
  return found;
}

/// Of every rule, also of LAMB.
template <class Real>
UpdateKernelOf<Real> update_kernel(Isa isa, int32_t optimizer) {
  if (optimizer != ZERO_OPTIMIZER_LAMB) return kernel_table(isa).update_of<Real>(optimizer);
  switch (isa) {
    case Isa::scalar:
      return turn_by_lamb<Isa::scalar, Real>;
    case Isa::avx2:
      return turn_by_lamb<Isa::avx2, Real>;
    case Isa::avx512:
      return turn_by_lamb<Isa::avx512, Real>;
  }
  return nullptr;
}

/// `run` has the gradients of one rank, and is the whole tensor.
template <class Real>
uint64_t whole_step(const KernelTable& kernels, int32_t optimizer, const UpdateRunOf<Real>& run,
                    const StepContext& context) {
  const Rule& rule = *find_rule(optimizer);
  Scalars scalars = rule.prepare(context);
  const auto update = [&] { return kernels.update_of<Real>(optimizer)(run, scalars); };
  if (rule.trust == nullptr) return update();
  const double norm = plain_norm(run.param, run.count);
  double direction = plain_norm(run.grad, run.count) * std::fabs(scalars.factor);
  uint64_t nonfinite = 0;
  std::vector<Real> directions(run.count);
  if (rule.trust->of_update) {
    Squares squares;
    nonfinite = kernels.lamb_of<Real>().measure(run, directions.data(), scalars, run.count,
                                                run.count, &squares);
    direction = plain_norm(directions.data(), run.count);
  }
  scalars.value[rule.trust->scalar] *=
      rule.trust->ratio({context.settings, rule.settings.size()}, norm, direction);
  if (!rule.trust->of_update) return update();
  kernels.lamb_of<Real>().step(run.param, directions.data(), run.count, scalars);
  return nonfinite;
}

}  // namespace zero::test
