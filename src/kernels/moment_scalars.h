// SPDX-License-Identifier: Apache-2.0
// Scalars of the optimizers that average gradients, for hosts and devices.
#pragma once

#include "kernels/rows.h"
#include "kernels/rules.h"

namespace zero::rows {

ZERO_HOST_DEVICE inline double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

/// What begins the scalars of every rule with two moments.
ZERO_HOST_DEVICE inline void set_betas(Scalars& scalars, double beta1, double beta2) {
  using rules::Adam;
  using rules::Lion;
  using rules::Nadam;
  using rules::Radam;
  static_assert(int{Lion::one_minus_beta2} == Adam::one_minus_beta2);
  static_assert(int{Radam::one_minus_beta2} == Adam::one_minus_beta2);
  static_assert(int{Nadam::one_minus_beta2} == Adam::one_minus_beta2);
  scalars.value[Adam::beta1] = beta1;
  scalars.value[Adam::one_minus_beta1] = 1 - beta1;
  scalars.value[Adam::beta2] = beta2;
  scalars.value[Adam::one_minus_beta2] = 1 - beta2;
}

// ---- AdamW and Adam: the same settings.

struct AdamSettings {
  enum { lr, beta1, beta2, eps, weight_decay, amsgrad, maximize };
};

ZERO_HOST_DEVICE inline Scalars adam_scalars(const StepContext& context) {
  using rules::Adam;
  const double* const setting = context.settings;
  const double beta1 = setting[AdamSettings::beta1];
  const double beta2 = setting[AdamSettings::beta2];
  const double correction1 = 1 - power(beta1, context.step);
  const double correction2 = 1 - power(beta2, context.step);
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[AdamSettings::maximize] != 0);
  set_betas(scalars, beta1, beta2);
  scalars.value[Adam::step_size] = setting[AdamSettings::lr] / correction1;
  scalars.value[Adam::root_scale] = 1 / rules::root(correction2);
  scalars.value[Adam::eps] = setting[AdamSettings::eps];
  scalars.flag[Adam::amsgrad] = setting[AdamSettings::amsgrad] != 0;
  return scalars;
}

ZERO_HOST_DEVICE inline Scalars prepare_adamw(const StepContext& context) {
  const double lr = context.settings[AdamSettings::lr];
  const double weight_decay = context.settings[AdamSettings::weight_decay];
  Scalars scalars = adam_scalars(context);
  scalars.value[rules::Adam::decay] = 1 - lr * weight_decay;
  return scalars;
}

ZERO_HOST_DEVICE inline Scalars prepare_adam(const StepContext& context) {
  const double weight_decay = context.settings[AdamSettings::weight_decay];
  Scalars scalars = adam_scalars(context);
  scalars.value[rules::Adam::decay] = weight_decay;
  scalars.flag[rules::Adam::decays] = weight_decay != 0;
  return scalars;
}

// ---- Adamax

struct AdamaxSettings {
  enum { lr, beta1, beta2, eps, weight_decay, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_adamax(const StepContext& context) {
  using rules::Adamax;
  const double* const setting = context.settings;
  const double beta1 = setting[AdamaxSettings::beta1];
  const double correction = 1 - power(beta1, context.step);
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[AdamaxSettings::maximize] != 0);
  scalars.value[Adamax::beta1] = beta1;
  scalars.value[Adamax::one_minus_beta1] = 1 - beta1;
  scalars.value[Adamax::beta2] = setting[AdamaxSettings::beta2];
  scalars.value[Adamax::step_size] = setting[AdamaxSettings::lr] / correction;
  scalars.value[Adamax::eps] = setting[AdamaxSettings::eps];
  scalars.value[Adamax::weight_decay] = setting[AdamaxSettings::weight_decay];
  scalars.flag[Adamax::decays] = setting[AdamaxSettings::weight_decay] != 0;
  return scalars;
}

// ---- RAdam and NAdam: either kind of weight decay.

/// The scalar that rules::Radam and rules::Nadam call `decay`.
ZERO_HOST_DEVICE inline double decay_of_either_kind(double lr, double weight_decay,
                                                    bool decoupled) {
  return decoupled || weight_decay == 0 ? 1 - lr * weight_decay : weight_decay;
}

struct RadamSettings {
  enum { lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_radam(const StepContext& context) {
  using rules::Radam;
  const double* const setting = context.settings;
  const double lr = setting[RadamSettings::lr];
  const double beta1 = setting[RadamSettings::beta1];
  const double beta2 = setting[RadamSettings::beta2];
  const double weight_decay = setting[RadamSettings::weight_decay];
  const bool decoupled = setting[RadamSettings::decoupled_weight_decay] != 0;
  const double power2 = power(beta2, context.step);
  const double correction2 = 1 - power2;
  // Lengths of the averages that the second moment stands for: in the end, and now.
  const double rho_end = 2 / (1 - beta2) - 1;
  const double rho = rho_end - 2 * static_cast<double>(context.step) * power2 / correction2;
  double step_size = lr / (1 - power(beta1, context.step));
  const bool rectified = rho > 5;
  if (rectified) {
    const double rectification =
        rules::root((rho - 4) * (rho - 2) * rho_end / ((rho_end - 4) * (rho_end - 2) * rho));
    step_size *= rules::root(correction2) * rectification;
  }
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[RadamSettings::maximize] != 0);
  set_betas(scalars, beta1, beta2);
  scalars.value[Radam::step_size] = step_size;
  scalars.value[Radam::eps] = setting[RadamSettings::eps];
  scalars.value[Radam::decay] = decay_of_either_kind(lr, weight_decay, decoupled);
  scalars.flag[Radam::decays] = weight_decay != 0 && !decoupled;
  scalars.flag[Radam::rectified] = rectified;
  return scalars;
}

struct NadamSettings {
  enum { lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled_weight_decay, maximize };
};

/// e^x for x <= 0, to about 1e-14: a short series near 0, squared until it is far away.
ZERO_HOST_DEVICE inline double exp_of_negative(double x) {
  if (x < -700) return 0;
  int halvings = 0;
  for (; x < -0x1p-4; x *= 0.5) halvings++;
  double sum = 1;
  for (int k = 12; k > 0; k--) sum = 1 + x * sum / k;
  for (; halvings > 0; halvings--) sum *= sum;
  return sum;
}

/// The momentum of a step, which grows to beta1.
ZERO_HOST_DEVICE inline double nadam_momentum(const StepContext& context, int64_t step) {
  constexpr double kLog096 = -0.040821994520255166;
  const double decay = context.settings[NadamSettings::momentum_decay];
  return context.settings[NadamSettings::beta1] *
         (1 - 0.5 * exp_of_negative(kLog096 * (static_cast<double>(step) * decay)));
}

ZERO_HOST_DEVICE inline double nadam_product(const StepContext& context) {
  return context.product * nadam_momentum(context, context.step);
}

ZERO_HOST_DEVICE inline Scalars prepare_nadam(const StepContext& context) {
  using rules::Nadam;
  const double* const setting = context.settings;
  const double lr = setting[NadamSettings::lr];
  const double beta2 = setting[NadamSettings::beta2];
  const double weight_decay = setting[NadamSettings::weight_decay];
  const bool decoupled = setting[NadamSettings::decoupled_weight_decay] != 0;
  const double mu = nadam_momentum(context, context.step);
  const double next_mu = nadam_momentum(context, context.step + 1);
  const double product = nadam_product(context);
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[NadamSettings::maximize] != 0);
  set_betas(scalars, setting[NadamSettings::beta1], beta2);
  scalars.value[Nadam::grad_size] = lr * (1 - mu) / (1 - product);
  scalars.value[Nadam::avg_size] = lr * next_mu / (1 - product * next_mu);
  scalars.value[Nadam::root_scale] = 1 / rules::root(1 - power(beta2, context.step));
  scalars.value[Nadam::eps] = setting[NadamSettings::eps];
  scalars.value[Nadam::decay] = decay_of_either_kind(lr, weight_decay, decoupled);
  scalars.flag[Nadam::decays] = weight_decay != 0 && !decoupled;
  return scalars;
}

// ---- Lion

struct LionSettings {
  enum { lr, beta1, beta2, weight_decay, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_lion(const StepContext& context) {
  using rules::Lion;
  const double* const setting = context.settings;
  const double lr = setting[LionSettings::lr];
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[LionSettings::maximize] != 0);
  set_betas(scalars, setting[LionSettings::beta1], setting[LionSettings::beta2]);
  scalars.value[Lion::lr] = lr;
  scalars.value[Lion::decay] = 1 - lr * setting[LionSettings::weight_decay];
  return scalars;
}

// ---- LAMB

struct LambSettings {
  enum { lr, beta1, beta2, eps, weight_decay, always_adapt, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_lamb(const StepContext& context) {
  using rules::Lamb;
  static_assert(int{Lamb::one_minus_beta2} == rules::Adam::one_minus_beta2);
  const double* const setting = context.settings;
  const double beta1 = setting[LambSettings::beta1];
  const double beta2 = setting[LambSettings::beta2];
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[LambSettings::maximize] != 0);
  set_betas(scalars, beta1, beta2);
  scalars.value[Lamb::avg_scale] = 1 / (1 - power(beta1, context.step));
  scalars.value[Lamb::root_scale] = 1 / rules::root(1 - power(beta2, context.step));
  scalars.value[Lamb::eps] = setting[LambSettings::eps];
  scalars.value[Lamb::weight_decay] = setting[LambSettings::weight_decay];
  scalars.value[Lamb::rate] = setting[LambSettings::lr];
  scalars.flag[Lamb::decays] = setting[LambSettings::weight_decay] != 0;
  return scalars;
}

}  // namespace zero::rows
