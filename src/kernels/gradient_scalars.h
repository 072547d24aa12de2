// SPDX-License-Identifier: Apache-2.0
// Scalars of the optimizers that scale the gradient itself, for hosts and devices.
#pragma once

#include "kernels/rows.h"
#include "kernels/rules.h"

namespace zero::rows {

// ---- SGD

struct SgdSettings {
  enum { lr, momentum, dampening, weight_decay, nesterov, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_sgd(const StepContext& context) {
  using rules::Sgd;
  const double* const setting = context.settings;
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[SgdSettings::maximize] != 0);
  scalars.value[Sgd::lr] = setting[SgdSettings::lr];
  scalars.value[Sgd::momentum] = setting[SgdSettings::momentum];
  scalars.value[Sgd::one_minus_dampening] = 1 - setting[SgdSettings::dampening];
  scalars.value[Sgd::weight_decay] = setting[SgdSettings::weight_decay];
  scalars.flag[Sgd::decays] = setting[SgdSettings::weight_decay] != 0;
  scalars.flag[Sgd::has_momentum] = setting[SgdSettings::momentum] != 0;
  scalars.flag[Sgd::first] = (context.live_slots & (1u << Sgd::momentum_buffer)) == 0;
  scalars.flag[Sgd::nesterov] = setting[SgdSettings::nesterov] != 0;
  return scalars;
}

// ---- RMSprop

struct RmspropSettings {
  enum { lr, alpha, eps, weight_decay, momentum, centered, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_rmsprop(const StepContext& context) {
  using rules::Rmsprop;
  const double* const setting = context.settings;
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[RmspropSettings::maximize] != 0);
  scalars.value[Rmsprop::lr] = setting[RmspropSettings::lr];
  scalars.value[Rmsprop::alpha] = setting[RmspropSettings::alpha];
  scalars.value[Rmsprop::one_minus_alpha] = 1 - setting[RmspropSettings::alpha];
  scalars.value[Rmsprop::eps] = setting[RmspropSettings::eps];
  scalars.value[Rmsprop::weight_decay] = setting[RmspropSettings::weight_decay];
  scalars.value[Rmsprop::momentum] = setting[RmspropSettings::momentum];
  scalars.flag[Rmsprop::decays] = setting[RmspropSettings::weight_decay] != 0;
  scalars.flag[Rmsprop::has_momentum] = setting[RmspropSettings::momentum] != 0;
  scalars.flag[Rmsprop::centered] = setting[RmspropSettings::centered] != 0;
  return scalars;
}

// ---- Adagrad

struct AdagradSettings {
  enum { lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_adagrad(const StepContext& context) {
  using rules::Adagrad;
  const double* const setting = context.settings;
  const double slower =
      1 + static_cast<double>(context.step - 1) * setting[AdagradSettings::lr_decay];
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[AdagradSettings::maximize] != 0);
  scalars.value[Adagrad::step_size] = setting[AdagradSettings::lr] / slower;
  scalars.value[Adagrad::eps] = setting[AdagradSettings::eps];
  scalars.value[Adagrad::weight_decay] = setting[AdagradSettings::weight_decay];
  scalars.value[Adagrad::initial] = setting[AdagradSettings::initial_accumulator_value];
  scalars.flag[Adagrad::decays] = setting[AdagradSettings::weight_decay] != 0;
  scalars.flag[Adagrad::first] = (context.live_slots & (1u << Adagrad::sum)) == 0;
  return scalars;
}

// ---- Adadelta

struct AdadeltaSettings {
  enum { lr, rho, eps, weight_decay, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_adadelta(const StepContext& context) {
  using rules::Adadelta;
  const double* const setting = context.settings;
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[AdadeltaSettings::maximize] != 0);
  scalars.value[Adadelta::lr] = setting[AdadeltaSettings::lr];
  scalars.value[Adadelta::rho] = setting[AdadeltaSettings::rho];
  scalars.value[Adadelta::one_minus_rho] = 1 - setting[AdadeltaSettings::rho];
  scalars.value[Adadelta::eps] = setting[AdadeltaSettings::eps];
  scalars.value[Adadelta::weight_decay] = setting[AdadeltaSettings::weight_decay];
  scalars.flag[Adadelta::decays] = setting[AdadeltaSettings::weight_decay] != 0;
  return scalars;
}

// ---- Rprop

struct RpropSettings {
  enum { lr, eta_minus, eta_plus, step_size_min, step_size_max, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_rprop(const StepContext& context) {
  using rules::Rprop;
  const double* const setting = context.settings;
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[RpropSettings::maximize] != 0);
  scalars.value[Rprop::eta_minus] = setting[RpropSettings::eta_minus];
  scalars.value[Rprop::eta_plus] = setting[RpropSettings::eta_plus];
  scalars.value[Rprop::step_size_min] = setting[RpropSettings::step_size_min];
  scalars.value[Rprop::step_size_max] = setting[RpropSettings::step_size_max];
  scalars.value[Rprop::initial] = setting[RpropSettings::lr];
  scalars.flag[Rprop::first] = (context.live_slots & (1u << Rprop::step_size)) == 0;
  return scalars;
}

// ---- LARS

struct LarsSettings {
  enum { lr, momentum, weight_decay, nesterov, trust_coefficient, eps, always_adapt, maximize };
};

ZERO_HOST_DEVICE inline Scalars prepare_lars(const StepContext& context) {
  using rules::Lars;
  const double* const setting = context.settings;
  Scalars scalars;
  scalars.factor = signed_factor(context, setting[LarsSettings::maximize] != 0);
  scalars.value[Lars::lr] = setting[LarsSettings::lr];
  scalars.value[Lars::momentum] = setting[LarsSettings::momentum];
  scalars.value[Lars::weight_decay] = setting[LarsSettings::weight_decay];
  scalars.value[Lars::trust] = 1;
  scalars.flag[Lars::decays] = setting[LarsSettings::weight_decay] != 0;
  scalars.flag[Lars::has_momentum] = setting[LarsSettings::momentum] != 0;
  scalars.flag[Lars::first] = (context.live_slots & (1u << Lars::momentum_buffer)) == 0;
  scalars.flag[Lars::nesterov] = setting[LarsSettings::nesterov] != 0;
  return scalars;
}

}  // namespace zero::rows
