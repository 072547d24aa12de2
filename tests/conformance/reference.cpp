// SPDX-License-Identifier: Apache-2.0
// The reference for ranks: the same training by one process, in plain loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "stored.h"
#include "training.h"
#include "unsharded.h"

namespace zero::test {
namespace {

/// Returns the norm in long double. The fp64 lanes of the documented norm would need the plan, so
/// the results agree only within a few bits, and tests compare with a tolerance.
double reference_norm(const std::vector<std::vector<double>>& sums, double p) {
  long double total = 0;
  double largest = 0;
  for (const auto& sum : sums) {
    for (const double x : sum) {
      total += std::pow(std::fabs(static_cast<long double>(x)), static_cast<long double>(p));
      largest = std::max(largest, std::fabs(x));
    }
  }
  if (std::isinf(p)) return largest;
  return static_cast<double>(std::pow(total, 1 / static_cast<long double>(p)));
}

/// One parameter of the unsharded run, in the type of its arithmetic.
template <class Real>
class Alone {
 public:
  Alone(const Training& run, size_t param)
      : run_(with_own_settings(run, param)), param_(param), values_(all(initial(run, param))) {}

  /// Sums over ranks in rank order, and over micro-batches in order. Returns an empty sum if no
  /// rank has a gradient in any of them.
  const std::vector<Real>& gather(int step) {
    bool present = false;
    const int first = step * run_.micro_batches;
    sum_.clear();
    for (int batch = first; batch < first + run_.micro_batches; batch++) {
      std::vector<Real> before;
      if (run_.others_sum) before.swap(sum_);
      add_ranks(batch, present);
      for (size_t k = 0; k < before.size(); k++) sum_[k] = before[k] + sum_[k];
    }
    if (!present || frozen(run_, param_, step)) sum_.clear();
    return sum_;
  }

  /// Turns sums into gradients within a limit.
  const std::vector<Real>& clip(double factor, double limit) {
    for (Real& x : sum_) {
      x = x * static_cast<Real>(factor);
      if (std::fabs(x) > static_cast<Real>(limit)) x = std::copysign(static_cast<Real>(limit), x);
    }
    return sum_;
  }

  void apply(double factor) {
    if (sum_.empty()) return;
    if (setting(run_, "maximize", 0) != 0) factor = -factor;
    for (Real& x : sum_) x = x * static_cast<Real>(factor);
    state_.update(run_, values_, sum_);
    updated_ = true;
    if (run_.master != ZERO_MASTER_NONE) return;
    for (Real& value : values_) value = static_cast<Real>(held(value));
  }

  /// Returns the values in memory: master weights rounded to the parameter's type.
  std::vector<double> stored() const {
    std::vector<double> out;
    for (const Real value : values_) out.push_back(held(value));
    return out;
  }

 private:
  /// Returns what a parameter of this value holds. Before the first update, only its own type
  /// rounds.
  double held(Real value) const {
    int32_t dtype = dtypes_of(run_, param_).param;
    const bool ties_away = dtype == ZERO_BFLOAT16 && run_.master == ZERO_MASTER_REMAINDER;
    if (dtype == ZERO_FLOAT32 && run_.share_dtype != 0 && updated_) dtype = run_.share_dtype;
    return rounded(dtype, static_cast<double>(value), ties_away);
  }

  /// Adds one host after the other to the sums of earlier batches.
  void add_ranks(int batch, bool& present) {
    const int ranks = run_.reduced ? 1 : run_.world;
    if (run_.hosts.empty()) {
      for (int rank = 0; rank < ranks; rank++) add(sum_, of_rank(rank, batch, present));
      return;
    }
    const int hosts = *std::max_element(run_.hosts.begin(), run_.hosts.end()) + 1;
    for (int host = 0; host < hosts; host++) {
      std::vector<Real> of_host;
      for (int rank = 0; rank < ranks; rank++)
        if (run_.hosts[static_cast<size_t>(rank)] == host)
          add(of_host, of_rank(rank, batch, present));
      for (Real& x : of_host) x = travelled(x);  // rounded like the gradients of its ranks
      add(sum_, std::move(of_host));
    }
  }

  std::vector<Real> of_rank(int rank, int batch, bool& present) {
    std::vector<Real> g = all(gradient(run_, param_, rank, batch));
    for (Real& x : g) x = travelled(x);
    const bool has = has_gradient(run_, param_, rank, batch);
    if (!has) std::fill(g.begin(), g.end(), Real{0});
    present = present || has;
    return g;
  }

  static void add(std::vector<Real>& sum, std::vector<Real> more) {
    if (sum.empty()) {
      sum = std::move(more);
    } else {
      for (size_t k = 0; k < more.size(); k++) sum[k] = sum[k] + more[k];
    }
  }

  /// Rounds like the wire. Gradients that are already reduced, or have the wire type, are not
  /// rounded.
  Real travelled(Real x) const {
    if (run_.wire_dtype == 0 || run_.reduced || std::is_same_v<Real, double>) return x;
    if (dtypes_of(run_, param_).grad == run_.wire_dtype) return x;
    const double divided = static_cast<double>(x) / run_.predivide_factor;
    return static_cast<Real>(rounded(run_.wire_dtype, divided) * run_.predivide_factor);
  }

  static Training with_own_settings(const Training& all, size_t param) {
    Training run = follow_group(all, param);
    run.lr_scale = own_lr_scale(run, param).value_or(1);
    const auto decay = own_weight_decay(run, param);
    if (!decay) return run;
    run.settings.insert(run.settings.begin(), {"weight_decay", *decay});
    return run;
  }

  static std::vector<Real> all(const std::vector<double>& values) {
    std::vector<Real> out;
    for (const double value : values) out.push_back(static_cast<Real>(value));
    return out;
  }

  const Training run_;
  const size_t param_;
  std::vector<Real> values_, sum_;
  bool updated_ = false;
  Unsharded<Real> state_;
};

/// Returns the divisor of a mean.
int divisor(const Training& run, int step) {
  int ranks = run.world;
  for (int rank = 0; rank < run.world && run.uneven_inputs == ZERO_UNEVEN_ACTIVE; rank++)
    ranks -= joined(run, rank, step);
  return ranks;
}

using Single = Alone<float>;
using Double = Alone<double>;

}  // namespace

Outcome reference(const Training& run, const std::vector<double>& norms) {
  Outcome out;
  std::vector<std::variant<Single, Double>> params;
  for (size_t i = 0; i < run.sizes.size(); i++) {
    if (dtypes_of(run, i).param == ZERO_FLOAT64) {
      params.emplace_back(std::in_place_type<Double>, run, i);
    } else {
      params.emplace_back(std::in_place_type<Single>, run, i);
    }
  }
  for (int step = 0; step < run.steps; step++) {
    std::vector<std::vector<double>> sums;
    const auto take = [&](const auto& sum) { sums.emplace_back(sum.begin(), sum.end()); };
    for (auto& param : params) std::visit([&](auto& alone) { take(alone.gather(step)); }, param);
    double factor = (run.sum || run.reduced ? 1.0 : 1.0 / divisor(run, step)) / run.loss_scale;
    if (run.clip_value > 0) {
      sums.clear();
      for (auto& param : params)
        std::visit([&](auto& alone) { take(alone.clip(factor, run.clip_value)); }, param);
      factor = 1;
    }
    double norm = -1;
    if (run.max_grad_norm > 0) {
      norm = reference_norm(sums, run.norm_type) * factor;
      const double exact = norms.empty() ? norm : norms[static_cast<size_t>(step)];
      const double clip = run.max_grad_norm / (exact + 1e-6);
      if (clip < 1) factor *= clip;
    }
    out.norms.push_back(norm);
    for (auto& param : params) std::visit([&](auto& alone) { alone.apply(factor); }, param);
  }
  for (const auto& param : params) {
    const auto stored = std::visit([](const auto& alone) { return alone.stored(); }, param);
    out.params.insert(out.params.end(), stored.begin(), stored.end());
  }
  return out;
}

}  // namespace zero::test
