// SPDX-License-Identifier: Apache-2.0
// The update rules, once, for one element: every instruction set and every device compiles these
// lines. No function here may be contracted to fma or reassociated: the bits are the contract.
#pragma once

#include <math.h>

#include "kernels/host_device.h"
#include "kernels/rule.h"

namespace zero::rules {

// The places of Scalars::value and Scalars::flag, as the rows fill them.

struct Adam {  // and AdamW
  enum Value {
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    step_size,   // lr / (1 - beta1^step)
    root_scale,  // 1 / sqrt(1 - beta2^step)
    eps,
    decay  // AdamW: 1 - lr * weight_decay. Adam: weight_decay
  };
  enum Flag { amsgrad, decays };
  enum Slot { exp_avg, exp_avg_sq, max_exp_avg_sq };
};

struct Sgd {
  enum Value { lr, momentum, one_minus_dampening, weight_decay };
  enum Flag { decays, has_momentum, first, nesterov };  // first: the buffer holds nothing yet
  enum Slot { momentum_buffer };
};

struct Rmsprop {
  enum Value { lr, alpha, one_minus_alpha, eps, weight_decay, momentum };
  enum Flag { decays, has_momentum, centered };
  enum Slot { square_avg, momentum_buffer, grad_avg };
};

struct Adagrad {
  enum Value { step_size, eps, weight_decay, initial };  // step_size: lr / (1 + (step-1) lr_decay)
  enum Flag { decays, first };                           // first: the sum holds nothing yet
  enum Slot { sum };
};

struct Lion {
  enum Value {
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    lr,
    decay  // 1 - lr * weight_decay
  };
  enum Slot { exp_avg };
};

struct Adamax {
  enum Value { beta1, one_minus_beta1, beta2, step_size, eps, weight_decay };
  enum Flag { decays };
  enum Slot { exp_avg, exp_inf };
};

struct Adadelta {
  enum Value { lr, rho, one_minus_rho, eps, weight_decay };
  enum Flag { decays };
  enum Slot { square_avg, acc_delta };
};

struct Radam {
  enum Value {
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    step_size,  // lr / (1 - beta1^step), and where rectified sqrt(1 - beta2^step) and its factor
    eps,
    decay  // where `decays`, into the gradient: weight_decay. Else 1 - lr * weight_decay, or 1
  };
  enum Flag { decays, rectified };
  enum Slot { exp_avg, exp_avg_sq };
};

struct Nadam {
  enum Value {
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    grad_size,
    avg_size,
    root_scale,  // 1 / sqrt(1 - beta2^step)
    eps,
    decay  // as in Radam
  };
  enum Flag { decays };
  enum Slot { exp_avg, exp_avg_sq };
};

struct Rprop {
  enum Value { eta_minus, eta_plus, step_size_min, step_size_max, initial };
  enum Flag { first };  // no slot holds anything yet
  enum Slot { prev, step_size };
};

struct Lamb {
  enum Value {
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    avg_scale,   // 1 / (1 - beta1^step)
    root_scale,  // 1 / sqrt(1 - beta2^step)
    eps,
    weight_decay,
    rate = kTrusted  // lr, and then with the trust ratio in it
  };
  enum Flag { decays };
  enum Slot { exp_avg, exp_avg_sq };
};

struct Lars {
  enum Value { lr, momentum, weight_decay, trust = kTrusted };  // trust: 1, and then the ratio
  enum Flag { decays, has_momentum, first, nesterov };          // first: the buffer holds nothing
  enum Slot { momentum_buffer };
};

/// IEEE's own, one instruction each: exact to the bit.
ZERO_ELEMENT float root(float a) { return sqrtf(a); }
ZERO_ELEMENT double root(double a) { return sqrt(a); }
ZERO_ELEMENT float magnitude(float a) { return fabsf(a); }
ZERO_ELEMENT double magnitude(double a) { return fabs(a); }

/// The larger one; NaN if either is.
template <class Real>
ZERO_ELEMENT Real maximum(Real a, Real b) {
  const Real larger = a > b ? a : b;
  return a != a ? a : larger;
}

/// Both moments and the step along them; AdamW and Adam share it.
template <class Real>
ZERO_ELEMENT Real adam_step(Real param, Real gradient, Real& exp_avg, Real& exp_avg_sq,
                            Real* max_exp_avg_sq, const Real* value) {
  exp_avg = exp_avg * value[Adam::beta1] + gradient * value[Adam::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Adam::beta2] + (gradient * value[Adam::one_minus_beta2]) * gradient;
  Real second = exp_avg_sq;
  if (max_exp_avg_sq != nullptr) second = *max_exp_avg_sq = maximum(*max_exp_avg_sq, second);
  const Real denominator = root(second) * value[Adam::root_scale] + value[Adam::eps];
  return param - (exp_avg * value[Adam::step_size]) / denominator;
}

/// Decoupled decay: the parameter shrinks, the gradient does not know. `max_exp_avg_sq` is null
/// without amsgrad.
template <class Real>
ZERO_ELEMENT void adamw(Real& param, Real gradient, Real& exp_avg, Real& exp_avg_sq,
                        Real* max_exp_avg_sq, const Real* value) {
  param =
      adam_step(param * value[Adam::decay], gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, value);
}

/// Decay as part of the gradient; without any, the parameter must not reach it (0 * inf).
template <class Real>
ZERO_ELEMENT void adam(Real& param, Real gradient, Real& exp_avg, Real& exp_avg_sq,
                       Real* max_exp_avg_sq, const Real* value, bool decays) {
  if (decays) gradient = gradient + param * value[Adam::decay];
  param = adam_step(param, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, value);
}

/// `buffer` is null without momentum. The first gradient becomes the buffer as it is, undampened.
template <class Real>
ZERO_ELEMENT void sgd(Real& param, Real gradient, Real* buffer, const Real* value, bool decays,
                      bool first, bool nesterov) {
  if (decays) gradient = gradient + param * value[Sgd::weight_decay];
  if (buffer != nullptr) {
    *buffer = first ? gradient
                    : *buffer * value[Sgd::momentum] + gradient * value[Sgd::one_minus_dampening];
    gradient = nesterov ? gradient + *buffer * value[Sgd::momentum] : *buffer;
  }
  param = param - gradient * value[Sgd::lr];
}

/// `buffer` is null without momentum, `grad_avg` unless centered.
template <class Real>
ZERO_ELEMENT void rmsprop(Real& param, Real gradient, Real& square_avg, Real* buffer,
                          Real* grad_avg, const Real* value, bool decays) {
  if (decays) gradient = gradient + param * value[Rmsprop::weight_decay];
  square_avg =
      square_avg * value[Rmsprop::alpha] + (gradient * value[Rmsprop::one_minus_alpha]) * gradient;
  Real second = square_avg;
  if (grad_avg != nullptr) {
    *grad_avg = *grad_avg * value[Rmsprop::alpha] + gradient * value[Rmsprop::one_minus_alpha];
    second = square_avg - *grad_avg * *grad_avg;
  }
  const Real denominator = root(second) + value[Rmsprop::eps];
  if (buffer != nullptr) {
    *buffer = *buffer * value[Rmsprop::momentum] + gradient / denominator;
    param = param - *buffer * value[Rmsprop::lr];
  } else {
    param = param - (gradient * value[Rmsprop::lr]) / denominator;
  }
}

template <class Real>
ZERO_ELEMENT void adagrad(Real& param, Real gradient, Real& sum, const Real* value, bool decays,
                          bool first) {
  if (decays) gradient = gradient + param * value[Adagrad::weight_decay];
  sum = (first ? value[Adagrad::initial] : sum) + gradient * gradient;
  param = param - (gradient * value[Adagrad::step_size]) / (root(sum) + value[Adagrad::eps]);
}

/// The sign of a mixture steps; a NaN has no sign and stays one. Decay is decoupled.
template <class Real>
ZERO_ELEMENT void lion(Real& param, Real gradient, Real& exp_avg, const Real* value) {
  const Real mix = exp_avg * value[Lion::beta1] + gradient * value[Lion::one_minus_beta1];
  const Real sign = mix > 0 ? Real{1} : mix < 0 ? -Real{1} : mix;
  param = param * value[Lion::decay] - sign * value[Lion::lr];
  exp_avg = exp_avg * value[Lion::beta2] + gradient * value[Lion::one_minus_beta2];
}

template <class Real>
ZERO_ELEMENT void adamax(Real& param, Real gradient, Real& exp_avg, Real& exp_inf,
                         const Real* value, bool decays) {
  if (decays) gradient = gradient + param * value[Adamax::weight_decay];
  exp_avg = exp_avg * value[Adamax::beta1] + gradient * value[Adamax::one_minus_beta1];
  exp_inf = maximum(exp_inf * value[Adamax::beta2], magnitude(gradient) + value[Adamax::eps]);
  param = param - (exp_avg * value[Adamax::step_size]) / exp_inf;
}

template <class Real>
ZERO_ELEMENT void adadelta(Real& param, Real gradient, Real& square_avg, Real& acc_delta,
                           const Real* value, bool decays) {
  if (decays) gradient = gradient + param * value[Adadelta::weight_decay];
  const Real eps = value[Adadelta::eps];
  square_avg =
      square_avg * value[Adadelta::rho] + (gradient * value[Adadelta::one_minus_rho]) * gradient;
  const Real delta = root(acc_delta + eps) / root(square_avg + eps) * gradient;
  acc_delta = acc_delta * value[Adadelta::rho] + (delta * value[Adadelta::one_minus_rho]) * delta;
  param = param - delta * value[Adadelta::lr];
}

/// While the variance of the second moment is unknown (not `rectified`) it is left out.
template <class Real>
ZERO_ELEMENT void radam(Real& param, Real gradient, Real& exp_avg, Real& exp_avg_sq,
                        const Real* value, bool decays, bool rectified) {
  const Real old = decays ? param : param * value[Radam::decay];
  if (decays) gradient = gradient + param * value[Radam::decay];
  exp_avg = exp_avg * value[Radam::beta1] + gradient * value[Radam::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Radam::beta2] + (gradient * value[Radam::one_minus_beta2]) * gradient;
  const Real step = exp_avg * value[Radam::step_size];
  param = old - (rectified ? step / (root(exp_avg_sq) + value[Radam::eps]) : step);
}

template <class Real>
ZERO_ELEMENT void nadam(Real& param, Real gradient, Real& exp_avg, Real& exp_avg_sq,
                        const Real* value, bool decays) {
  const Real old = decays ? param : param * value[Nadam::decay];
  if (decays) gradient = gradient + param * value[Nadam::decay];
  exp_avg = exp_avg * value[Nadam::beta1] + gradient * value[Nadam::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Nadam::beta2] + (gradient * value[Nadam::one_minus_beta2]) * gradient;
  const Real denominator = root(exp_avg_sq) * value[Nadam::root_scale] + value[Nadam::eps];
  param =
      old - (gradient * value[Nadam::grad_size] + exp_avg * value[Nadam::avg_size]) / denominator;
}

/// Where the gradient changes its sign, the step shrinks and is not made. As in torch, a NaN has
/// sign 0: it moves nothing.
template <class Real>
ZERO_ELEMENT void rprop(Real& param, Real gradient, Real& prev, Real& step_size, const Real* value,
                        bool first) {
  const Real same = first ? Real{0} : gradient * prev;
  const Real eta = same > 0 ? value[Rprop::eta_plus] : same < 0 ? value[Rprop::eta_minus] : Real{1};
  const Real wanted = (first ? value[Rprop::initial] : step_size) * eta;
  const Real raised = wanted < value[Rprop::step_size_min] ? value[Rprop::step_size_min] : wanted;
  step_size = raised > value[Rprop::step_size_max] ? value[Rprop::step_size_max] : raised;
  prev = same < 0 ? Real{0} : gradient;
  const Real sign = prev > 0 ? Real{1} : prev < 0 ? -Real{1} : Real{0};
  param = param - sign * step_size;
}

/// Both moments, and the direction whose norm the step depends on: Adam's step and decoupled decay,
/// of length 1.
template <class Real>
ZERO_ELEMENT Real lamb_direction(Real param, Real gradient, Real& exp_avg, Real& exp_avg_sq,
                                 const Real* value, bool decays) {
  exp_avg = exp_avg * value[Lamb::beta1] + gradient * value[Lamb::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Lamb::beta2] + (gradient * value[Lamb::one_minus_beta2]) * gradient;
  const Real denominator = root(exp_avg_sq) * value[Lamb::root_scale] + value[Lamb::eps];
  const Real direction = (exp_avg * value[Lamb::avg_scale]) / denominator;
  return decays ? direction + param * value[Lamb::weight_decay] : direction;
}

/// The step along that direction.
template <class Real>
ZERO_ELEMENT Real lamb_step(Real param, Real direction, const Real* value) {
  return param - direction * value[Lamb::rate];
}

/// SGD with the ratio in what enters the buffer, which is null without momentum.
template <class Real>
ZERO_ELEMENT void lars(Real& param, Real gradient, Real* buffer, const Real* value, bool decays,
                       bool first, bool nesterov) {
  if (decays) gradient = gradient + param * value[Lars::weight_decay];
  gradient = gradient * value[Lars::trust];
  if (buffer != nullptr) {
    *buffer = first ? gradient : *buffer * value[Lars::momentum] + gradient;
    gradient = nesterov ? gradient + *buffer * value[Lars::momentum] : *buffer;
  }
  param = param - gradient * value[Lars::lr];
}

}  // namespace zero::rules
