// SPDX-License-Identifier: Apache-2.0
// The update rules, once, for one element: every instruction set and every device compiles these
// lines. No function here may be contracted to fma or reassociated: the bits are the contract.
#pragma once

#include <math.h>

#include "kernels/rule.h"

#ifndef ZERO_HOST_DEVICE
#define ZERO_HOST_DEVICE __attribute__((always_inline))
#endif

namespace zero::rules {

// The places of Scalars::value and Scalars::flag, as rule.cpp fills them.

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

/// The larger one; NaN if either is.
ZERO_HOST_DEVICE inline float maximum(float a, float b) {
  const float larger = a > b ? a : b;
  return a != a ? a : larger;
}

/// Both moments and the step along them; AdamW and Adam share it.
ZERO_HOST_DEVICE inline float adam_step(float param, float gradient, float& exp_avg,
                                        float& exp_avg_sq, float* max_exp_avg_sq,
                                        const float* value) {
  exp_avg = exp_avg * value[Adam::beta1] + gradient * value[Adam::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Adam::beta2] + (gradient * value[Adam::one_minus_beta2]) * gradient;
  float second = exp_avg_sq;
  if (max_exp_avg_sq != nullptr) second = *max_exp_avg_sq = maximum(*max_exp_avg_sq, second);
  const float denominator = sqrtf(second) * value[Adam::root_scale] + value[Adam::eps];
  return param - (exp_avg * value[Adam::step_size]) / denominator;
}

/// Decoupled decay: the parameter shrinks, the gradient does not know. `max_exp_avg_sq` is null
/// without amsgrad.
ZERO_HOST_DEVICE inline void adamw(float& param, float gradient, float& exp_avg, float& exp_avg_sq,
                                   float* max_exp_avg_sq, const float* value) {
  param =
      adam_step(param * value[Adam::decay], gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, value);
}

/// Decay as part of the gradient; without any, the parameter must not reach it (0 * inf).
ZERO_HOST_DEVICE inline void adam(float& param, float gradient, float& exp_avg, float& exp_avg_sq,
                                  float* max_exp_avg_sq, const float* value, bool decays) {
  if (decays) gradient = gradient + param * value[Adam::decay];
  param = adam_step(param, gradient, exp_avg, exp_avg_sq, max_exp_avg_sq, value);
}

/// `buffer` is null without momentum. The first gradient becomes the buffer as it is, undampened.
ZERO_HOST_DEVICE inline void sgd(float& param, float gradient, float* buffer, const float* value,
                                 bool decays, bool first, bool nesterov) {
  if (decays) gradient = gradient + param * value[Sgd::weight_decay];
  if (buffer != nullptr) {
    *buffer = first ? gradient
                    : *buffer * value[Sgd::momentum] + gradient * value[Sgd::one_minus_dampening];
    gradient = nesterov ? gradient + *buffer * value[Sgd::momentum] : *buffer;
  }
  param = param - gradient * value[Sgd::lr];
}

/// `buffer` is null without momentum, `grad_avg` unless centered.
ZERO_HOST_DEVICE inline void rmsprop(float& param, float gradient, float& square_avg, float* buffer,
                                     float* grad_avg, const float* value, bool decays) {
  if (decays) gradient = gradient + param * value[Rmsprop::weight_decay];
  square_avg =
      square_avg * value[Rmsprop::alpha] + (gradient * value[Rmsprop::one_minus_alpha]) * gradient;
  float second = square_avg;
  if (grad_avg != nullptr) {
    *grad_avg = *grad_avg * value[Rmsprop::alpha] + gradient * value[Rmsprop::one_minus_alpha];
    second = square_avg - *grad_avg * *grad_avg;
  }
  const float denominator = sqrtf(second) + value[Rmsprop::eps];
  if (buffer != nullptr) {
    *buffer = *buffer * value[Rmsprop::momentum] + gradient / denominator;
    param = param - *buffer * value[Rmsprop::lr];
  } else {
    param = param - (gradient * value[Rmsprop::lr]) / denominator;
  }
}

ZERO_HOST_DEVICE inline void adagrad(float& param, float gradient, float& sum, const float* value,
                                     bool decays, bool first) {
  if (decays) gradient = gradient + param * value[Adagrad::weight_decay];
  sum = (first ? value[Adagrad::initial] : sum) + gradient * gradient;
  param = param - (gradient * value[Adagrad::step_size]) / (sqrtf(sum) + value[Adagrad::eps]);
}

/// The sign of a mixture steps; a NaN has no sign and stays one. Decay is decoupled.
ZERO_HOST_DEVICE inline void lion(float& param, float gradient, float& exp_avg,
                                  const float* value) {
  const float mix = exp_avg * value[Lion::beta1] + gradient * value[Lion::one_minus_beta1];
  const float sign = mix > 0 ? 1.0f : mix < 0 ? -1.0f : mix;
  param = param * value[Lion::decay] - sign * value[Lion::lr];
  exp_avg = exp_avg * value[Lion::beta2] + gradient * value[Lion::one_minus_beta2];
}

ZERO_HOST_DEVICE inline void adamax(float& param, float gradient, float& exp_avg, float& exp_inf,
                                    const float* value, bool decays) {
  if (decays) gradient = gradient + param * value[Adamax::weight_decay];
  exp_avg = exp_avg * value[Adamax::beta1] + gradient * value[Adamax::one_minus_beta1];
  exp_inf = maximum(exp_inf * value[Adamax::beta2], fabsf(gradient) + value[Adamax::eps]);
  param = param - (exp_avg * value[Adamax::step_size]) / exp_inf;
}

ZERO_HOST_DEVICE inline void adadelta(float& param, float gradient, float& square_avg,
                                      float& acc_delta, const float* value, bool decays) {
  if (decays) gradient = gradient + param * value[Adadelta::weight_decay];
  const float eps = value[Adadelta::eps];
  square_avg =
      square_avg * value[Adadelta::rho] + (gradient * value[Adadelta::one_minus_rho]) * gradient;
  const float delta = sqrtf(acc_delta + eps) / sqrtf(square_avg + eps) * gradient;
  acc_delta = acc_delta * value[Adadelta::rho] + (delta * value[Adadelta::one_minus_rho]) * delta;
  param = param - delta * value[Adadelta::lr];
}

/// While the variance of the second moment is unknown (not `rectified`) it is left out.
ZERO_HOST_DEVICE inline void radam(float& param, float gradient, float& exp_avg, float& exp_avg_sq,
                                   const float* value, bool decays, bool rectified) {
  const float old = decays ? param : param * value[Radam::decay];
  if (decays) gradient = gradient + param * value[Radam::decay];
  exp_avg = exp_avg * value[Radam::beta1] + gradient * value[Radam::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Radam::beta2] + (gradient * value[Radam::one_minus_beta2]) * gradient;
  const float step = exp_avg * value[Radam::step_size];
  param = old - (rectified ? step / (sqrtf(exp_avg_sq) + value[Radam::eps]) : step);
}

ZERO_HOST_DEVICE inline void nadam(float& param, float gradient, float& exp_avg, float& exp_avg_sq,
                                   const float* value, bool decays) {
  const float old = decays ? param : param * value[Nadam::decay];
  if (decays) gradient = gradient + param * value[Nadam::decay];
  exp_avg = exp_avg * value[Nadam::beta1] + gradient * value[Nadam::one_minus_beta1];
  exp_avg_sq =
      exp_avg_sq * value[Nadam::beta2] + (gradient * value[Nadam::one_minus_beta2]) * gradient;
  const float denominator = sqrtf(exp_avg_sq) * value[Nadam::root_scale] + value[Nadam::eps];
  param =
      old - (gradient * value[Nadam::grad_size] + exp_avg * value[Nadam::avg_size]) / denominator;
}

/// Where the gradient changes its sign, the step shrinks and is not made. As in torch, a NaN has
/// sign 0: it moves nothing.
ZERO_HOST_DEVICE inline void rprop(float& param, float gradient, float& prev, float& step_size,
                                   const float* value, bool first) {
  const float same = first ? 0.0f : gradient * prev;
  const float eta = same > 0 ? value[Rprop::eta_plus] : same < 0 ? value[Rprop::eta_minus] : 1.0f;
  const float wanted = (first ? value[Rprop::initial] : step_size) * eta;
  const float raised = wanted < value[Rprop::step_size_min] ? value[Rprop::step_size_min] : wanted;
  step_size = raised > value[Rprop::step_size_max] ? value[Rprop::step_size_max] : raised;
  prev = same < 0 ? 0.0f : gradient;
  const float sign = prev > 0 ? 1.0f : prev < 0 ? -1.0f : 0.0f;
  param = param - sign * step_size;
}

}  // namespace zero::rules
