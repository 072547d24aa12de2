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

}  // namespace zero::rules
