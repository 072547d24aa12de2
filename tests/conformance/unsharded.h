// SPDX-License-Identifier: Apache-2.0
// The whole state of one parameter and its updates in plain loops: every rule, in single or double
// precision as documented.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "training.h"

namespace zero::test {

/// Returns the value of the setting `name` in the run.
inline double setting(const Training& run, std::string_view name, double initial_value) {
  const double scale = name == "lr" ? run.lr_scale : 1;
  for (const auto& [given, value] : run.settings) {
    if (given == name) return value * scale;
  }
  return initial_value * scale;
}

template <class Real>  // float or double
class Unsharded {
 public:
  /// Takes one step of the run's rule. `grad` is the gradient after `maximize`.
  void update(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    m_.resize(p.size());
    v_.resize(p.size());
    more_.resize(p.size());
    step_++;
    for (const auto& [optimizer, rule] : kRules)
      if (optimizer == run.optimizer) return (this->*rule)(run, p, grad);
    std::fill(p.begin(), p.end(), std::numeric_limits<Real>::quiet_NaN());
  }

 private:
  static Real sign(Real value) { return value > 0 ? Real{1} : value < 0 ? Real{-1} : Real{0}; }

  /// a * keep + b * rest
  static void mix(Real& a, double keep, Real b) {
    a = a * static_cast<Real>(keep) + b * static_cast<Real>(1 - keep);
  }
  /// Does the same with the square of b.
  static void mix_square(Real& a, double keep, Real b) {
    a = a * static_cast<Real>(keep) + (b * static_cast<Real>(1 - keep)) * b;
  }

  /// Uses more bits than a double has, so that the result does not depend on the order.
  static double norm(const std::vector<Real>& values) {
    long double sum = 0;
    for (const Real x : values) sum += static_cast<long double>(x) * static_cast<long double>(x);
    return static_cast<double>(std::sqrt(sum));
  }

  /// Returns `base` to the power of the step.
  double power(double base) const {
    // Squares from the lowest bit on, because fp64 shows the order of the products.
    double result = 1;
    for (int64_t rest = step_; rest > 0; rest /= 2, base = base * base) {
      if (rest % 2 == 1) result = result * base;
    }
    return result;
  }

  /// Returns the gradient with weight decay.
  Real decayed(const Training& run, Real p, Real g) const {
    const double decay = setting(run, "weight_decay", 0);
    if (decay == 0 || setting(run, "decoupled_weight_decay", 0) != 0) return g;
    return g + Real(decay) * p;
  }

  void adam(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const bool decoupled = run.optimizer == ZERO_OPTIMIZER_ADAMW;
    const double lr = setting(run, "lr", 1e-3), b1 = setting(run, "beta1", 0.9);
    const double b2 = setting(run, "beta2", 0.999), eps = setting(run, "eps", 1e-8);
    const bool amsgrad = setting(run, "amsgrad", 0) != 0;
    const Real keep = Real(1 - lr * setting(run, "weight_decay", 0.01));
    const Real size = Real(lr / (1 - power(b1)));
    const Real root = Real(1 / std::sqrt(1 - power(b2)));
    for (size_t i = 0; i < p.size(); i++) {
      if (decoupled) p[i] = p[i] * keep;
      const Real g = decoupled ? grad[i] : decayed(run, p[i], grad[i]);
      mix(m_[i], b1, g);
      mix_square(v_[i], b2, g);
      Real second = v_[i];
      if (amsgrad) second = more_[i] = std::max(more_[i], v_[i]);
      p[i] = p[i] - (m_[i] * size) / (std::sqrt(second) * root + Real(eps));
    }
  }

  /// Returns the direction of a step with momentum, which is `fresh` at first.
  Real with_momentum(const Training& run, size_t i, Real fresh, Real rest) {
    const Real mu = Real(setting(run, "momentum", 0));
    if (mu == 0) return fresh;
    m_[i] = has_momentum_ ? mu * m_[i] + rest * fresh : fresh;
    return setting(run, "nesterov", 0) != 0 ? fresh + mu * m_[i] : m_[i];
  }

  void sgd(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const Real lr = Real(setting(run, "lr", 1e-3));
    const Real rest = Real(1 - setting(run, "dampening", 0));
    for (size_t i = 0; i < p.size(); i++)
      p[i] = p[i] - lr * with_momentum(run, i, decayed(run, p[i], grad[i]), rest);
    has_momentum_ = setting(run, "momentum", 0) != 0;
  }

  void rmsprop(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const Real lr = Real(setting(run, "lr", 1e-2)), eps = Real(setting(run, "eps", 1e-8));
    const double alpha = setting(run, "alpha", 0.99), momentum = setting(run, "momentum", 0);
    const bool centered = setting(run, "centered", 0) != 0;
    for (size_t i = 0; i < p.size(); i++) {
      const Real g = decayed(run, p[i], grad[i]);
      mix_square(v_[i], alpha, g);
      if (centered) mix(more_[i], alpha, g);
      const Real denominator = std::sqrt(v_[i] - more_[i] * more_[i]) + eps;
      if (momentum == 0) {
        p[i] = p[i] - (g * lr) / denominator;
      } else {
        m_[i] = m_[i] * Real(momentum) + g / denominator;
        p[i] = p[i] - m_[i] * lr;
      }
    }
  }

  void adagrad(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double slower = 1 + static_cast<double>(step_ - 1) * setting(run, "lr_decay", 0);
    const Real lr = Real(setting(run, "lr", 1e-2) / slower), eps = Real(setting(run, "eps", 1e-10));
    if (step_ == 1)
      std::fill(v_.begin(), v_.end(), Real(setting(run, "initial_accumulator_value", 0)));
    for (size_t i = 0; i < p.size(); i++) {
      const Real g = decayed(run, p[i], grad[i]);
      v_[i] = v_[i] + g * g;
      p[i] = p[i] - (g * lr) / (std::sqrt(v_[i]) + eps);
    }
  }

  void lion(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double lr = setting(run, "lr", 1e-4), b1 = setting(run, "beta1", 0.9);
    const Real keep = Real(1 - lr * setting(run, "weight_decay", 0));
    for (size_t i = 0; i < p.size(); i++) {
      Real direction = m_[i];
      mix(direction, b1, grad[i]);
      p[i] = p[i] * keep - Real(lr) * sign(direction);
      mix(m_[i], setting(run, "beta2", 0.99), grad[i]);
    }
  }

  void adamax(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double b1 = setting(run, "beta1", 0.9);
    const Real b2 = Real(setting(run, "beta2", 0.999)), eps = Real(setting(run, "eps", 1e-8));
    const Real size = Real(setting(run, "lr", 2e-3) / (1 - power(b1)));
    for (size_t i = 0; i < p.size(); i++) {
      const Real g = decayed(run, p[i], grad[i]);
      mix(m_[i], b1, g);
      v_[i] = std::max(v_[i] * b2, std::fabs(g) + eps);
      p[i] = p[i] - (m_[i] * size) / v_[i];
    }
  }

  void adadelta(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const Real lr = Real(setting(run, "lr", 1)), eps = Real(setting(run, "eps", 1e-6));
    const double rho = setting(run, "rho", 0.9);
    for (size_t i = 0; i < p.size(); i++) {
      const Real g = decayed(run, p[i], grad[i]);
      mix_square(v_[i], rho, g);
      const Real delta = std::sqrt(m_[i] + eps) / std::sqrt(v_[i] + eps) * g;
      mix_square(m_[i], rho, delta);
      p[i] = p[i] - lr * delta;
    }
  }

  void radam(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double lr = setting(run, "lr", 1e-3), b1 = setting(run, "beta1", 0.9);
    const double b2 = setting(run, "beta2", 0.999), t = static_cast<double>(step_);
    const double end = 2 / (1 - b2) - 1;
    const double rho = end - 2 * t * power(b2) / (1 - power(b2));
    double size = lr / (1 - power(b1));
    if (rho > 5) {
      const double variance = ((rho - 4) * (rho - 2) * end) / ((end - 4) * (end - 2) * rho);
      size *= std::sqrt(1 - power(b2)) * std::sqrt(variance);
    }
    const bool decoupled = setting(run, "decoupled_weight_decay", 0) != 0;
    const Real keep = Real(1 - lr * setting(run, "weight_decay", 0));
    for (size_t i = 0; i < p.size(); i++) {
      const Real g = decayed(run, p[i], grad[i]);
      if (decoupled) p[i] = p[i] * keep;
      mix(m_[i], b1, g);
      mix_square(v_[i], b2, g);
      const Real divisor = rho > 5 ? std::sqrt(v_[i]) + Real(setting(run, "eps", 1e-8)) : Real{1};
      p[i] = p[i] - (m_[i] * Real(size)) / divisor;
    }
  }

  void nadam(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double lr = setting(run, "lr", 2e-3), b1 = setting(run, "beta1", 0.9);
    const double b2 = setting(run, "beta2", 0.999);
    const auto mu = [&](int64_t step) {
      const double decay = setting(run, "momentum_decay", 4e-3);
      return b1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(step) * decay));
    };
    product_ *= mu(step_);
    const Real of_grad = Real(lr * (1 - mu(step_)) / (1 - product_));
    const Real of_average = Real(lr * mu(step_ + 1) / (1 - product_ * mu(step_ + 1)));
    const Real root = Real(1 / std::sqrt(1 - power(b2))), eps = Real(setting(run, "eps", 1e-8));
    const bool decoupled = setting(run, "decoupled_weight_decay", 0) != 0;
    const Real keep = Real(1 - lr * setting(run, "weight_decay", 0));
    for (size_t i = 0; i < p.size(); i++) {
      const Real g = decayed(run, p[i], grad[i]);
      if (decoupled) p[i] = p[i] * keep;
      mix(m_[i], b1, g);
      mix_square(v_[i], b2, g);
      p[i] = p[i] - (of_grad * g + of_average * m_[i]) / (std::sqrt(v_[i]) * root + eps);
    }
  }

  void rprop(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const Real minus = Real(setting(run, "eta_minus", 0.5));
    const Real plus = Real(setting(run, "eta_plus", 1.2));
    const Real least = Real(setting(run, "step_size_min", 1e-6));
    const Real most = Real(setting(run, "step_size_max", 50));
    if (step_ == 1) std::fill(v_.begin(), v_.end(), Real(setting(run, "lr", 1e-2)));
    for (size_t i = 0; i < p.size(); i++) {
      const Real agreement = grad[i] * m_[i];
      if (agreement > 0) v_[i] = v_[i] * plus;
      if (agreement < 0) v_[i] = v_[i] * minus;
      v_[i] = std::clamp(v_[i], least, most);
      m_[i] = agreement < 0 ? Real{0} : grad[i];
      p[i] = p[i] - v_[i] * sign(m_[i]);
    }
  }

  void lamb(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double b1 = setting(run, "beta1", 0.9), b2 = setting(run, "beta2", 0.999);
    const double decay = setting(run, "weight_decay", 0.01);
    const Real scale = Real(1 / (1 - power(b1))), root = Real(1 / std::sqrt(1 - power(b2)));
    std::vector<Real> direction(p.size());
    for (size_t i = 0; i < p.size(); i++) {
      mix(m_[i], b1, grad[i]);
      mix_square(v_[i], b2, grad[i]);
      direction[i] = (m_[i] * scale) / (std::sqrt(v_[i]) * root + Real(setting(run, "eps", 1e-6)));
      if (decay != 0) direction[i] = direction[i] + Real(decay) * p[i];
    }
    const double from = norm(p), to = norm(direction);
    const bool adapts = (decay != 0 || setting(run, "always_adapt", 0) != 0) && from > 0 && to > 0;
    const Real rate = Real(setting(run, "lr", 1e-3) * (adapts ? from / to : 1));
    for (size_t i = 0; i < p.size(); i++) p[i] = p[i] - rate * direction[i];
  }

  void lars(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double decay = setting(run, "weight_decay", 0);
    const double of_param = norm(p), of_grad = norm(grad);
    double trust = 1;
    if ((decay != 0 || setting(run, "always_adapt", 0) != 0) && of_param > 0 && of_grad > 0) {
      trust = setting(run, "trust_coefficient", 1e-3) * of_param /
              (of_grad + decay * of_param + setting(run, "eps", 1e-8));
    }
    for (size_t i = 0; i < p.size(); i++) {
      const Real step = decayed(run, p[i], grad[i]) * Real(trust);
      p[i] = p[i] - Real(setting(run, "lr", 1)) * with_momentum(run, i, step, 1);
    }
    has_momentum_ = setting(run, "momentum", 0) != 0;
  }

  void adan(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double lr = setting(run, "lr", 1e-3), b1 = setting(run, "beta1", 0.98);
    const double b2 = setting(run, "beta2", 0.92), b3 = setting(run, "beta3", 0.99);
    const Real size = Real(lr / (1 - power(b1))), of_diff = Real(lr * b2 / (1 - power(b2)));
    const Real root = Real(1 / std::sqrt(1 - power(b3))), eps = Real(setting(run, "eps", 1e-8));
    const Real keep = Real(1 / (1 + lr * setting(run, "weight_decay", 0)));
    if (step_ == 1) before_ = grad;
    for (size_t i = 0; i < p.size(); i++) {
      const Real diff = grad[i] - before_[i];
      mix(m_[i], b1, grad[i]);
      mix(v_[i], b2, diff);
      mix_square(more_[i], b3, grad[i] + diff * Real(b2));
      p[i] = (p[i] - (m_[i] * size + v_[i] * of_diff) / (std::sqrt(more_[i]) * root + eps)) * keep;
    }
    before_ = grad;
  }

  void ademamix(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad) {
    const double lr = setting(run, "lr", 1e-3), b1 = setting(run, "beta1", 0.9);
    const double b2 = setting(run, "beta2", 0.999), b3 = setting(run, "beta3", 0.9999);
    const double warmup = setting(run, "alpha_warmup", 0), t = static_cast<double>(step_);
    const double alpha = setting(run, "alpha", 5) * (t < warmup ? t / warmup : 1);
    const Real size = Real(lr / (1 - power(b1))), slow = Real(lr * alpha);
    const Real root = Real(1 / std::sqrt(1 - power(b2))), eps = Real(setting(run, "eps", 1e-8));
    const Real keep = Real(1 - lr * setting(run, "weight_decay", 0));
    for (size_t i = 0; i < p.size(); i++) {
      mix(m_[i], b1, grad[i]);
      mix_square(v_[i], b2, grad[i]);
      mix(more_[i], b3, grad[i]);
      p[i] = p[i] * keep - (m_[i] * size + more_[i] * slow) / (std::sqrt(v_[i]) * root + eps);
    }
  }

  using Rule = void (Unsharded::*)(const Training&, std::vector<Real>&, const std::vector<Real>&);
  static constexpr std::pair<int32_t, Rule> kRules[] = {
      {ZERO_OPTIMIZER_ADAMW, &Unsharded::adam},
      {ZERO_OPTIMIZER_ADAM, &Unsharded::adam},
      {ZERO_OPTIMIZER_SGD, &Unsharded::sgd},
      {ZERO_OPTIMIZER_RMSPROP, &Unsharded::rmsprop},
      {ZERO_OPTIMIZER_ADAGRAD, &Unsharded::adagrad},
      {ZERO_OPTIMIZER_LION, &Unsharded::lion},
      {ZERO_OPTIMIZER_ADAMAX, &Unsharded::adamax},
      {ZERO_OPTIMIZER_ADADELTA, &Unsharded::adadelta},
      {ZERO_OPTIMIZER_RADAM, &Unsharded::radam},
      {ZERO_OPTIMIZER_NADAM, &Unsharded::nadam},
      {ZERO_OPTIMIZER_RPROP, &Unsharded::rprop},
      {ZERO_OPTIMIZER_LAMB, &Unsharded::lamb},
      {ZERO_OPTIMIZER_LARS, &Unsharded::lars},
      {ZERO_OPTIMIZER_ADAN, &Unsharded::adan},
      {ZERO_OPTIMIZER_ADEMAMIX, &Unsharded::ademamix},
  };

  std::vector<Real> m_, v_, more_, before_;
  double product_ = 1;
  int64_t step_ = 0;
  bool has_momentum_ = false;
};

}  // namespace zero::test
