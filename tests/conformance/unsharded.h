// SPDX-License-Identifier: Apache-2.0
// One parameter's whole state and its updates in plain loops: every rule, in single or double
// precision as documented.
#pragma once

#include <cstdint>
#include <vector>

#include "training.h"

namespace zero::test {

/// What the run sets `name` to.
double setting(const Training& run, const char* name, double initial_value);

template <class Real>  // float or double
class Unsharded {
 public:
  /// One step of the run's rule; `grad` is what `maximize` made of it.
  void update(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);

 private:
  double power(double base) const;  // to the step
  Real decayed(const Training& run, Real p, Real g) const;

  void adam(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void sgd(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void rmsprop(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void adagrad(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void lion(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void adamax(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void adadelta(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void radam(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void nadam(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void rprop(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void lamb(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void lars(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void ademamix(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);
  void adan(const Training& run, std::vector<Real>& p, const std::vector<Real>& grad);

  std::vector<Real> m_, v_, more_, before_;
  double product_ = 1;
  int64_t step_ = 0;
  bool has_momentum_ = false;
};

}  // namespace zero::test
