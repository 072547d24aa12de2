// SPDX-License-Identifier: Apache-2.0
// The rows of optimizers that scale the gradient itself: SGD, RMSprop, Adagrad, Adadelta, Rprop,
// LARS.
#include "kernels/gradient_scalars.h"
#include "kernels/rows.h"

namespace zero {
namespace {

using namespace rows;

constexpr Setting kMomentum = {"momentum", 0, Setting::positive_or_zero};

// ---- SGD

constexpr Setting kSgdSettings[] = {rate(1e-3),
                                    kMomentum,
                                    {"dampening", 0, Setting::any_finite},
                                    decay(0),
                                    {"nesterov", 0, Setting::flag},
                                    kMaximize};

constexpr const char* kSgdSlots[] = {"momentum_buffer"};

uint32_t sgd_slots_used(std::span<const double> settings) {
  return settings[SgdSettings::momentum] != 0 ? 0b1 : 0b0;
}

// ---- RMSprop

constexpr Setting kRmspropSettings[] = {
    rate(1e-2), {"alpha", 0.99, Setting::closed_unit_interval}, epsilon(1e-8), decay(0),
    kMomentum,  {"centered", 0, Setting::flag, true},           kMaximize};

constexpr const char* kRmspropSlots[] = {"square_avg", "momentum_buffer", "grad_avg"};

uint32_t rmsprop_slots_used(std::span<const double> settings) {
  return 0b001u | (settings[RmspropSettings::momentum] != 0 ? 0b010u : 0u) |
         (settings[RmspropSettings::centered] != 0 ? 0b100u : 0u);
}

// ---- Adagrad

constexpr Setting kAdagradSettings[] = {
    rate(1e-2),     {"lr_decay", 0, Setting::positive_or_zero},
    decay(0),       {"initial_accumulator_value", 0, Setting::positive_or_zero},
    epsilon(1e-10), kMaximize};

constexpr const char* kAdagradSlots[] = {"sum"};

// ---- Adadelta

constexpr Setting kAdadeltaSettings[] = {
    rate(1), {"rho", 0.9, Setting::closed_unit_interval}, epsilon(1e-6), decay(0), kMaximize};

constexpr const char* kAdadeltaSlots[] = {"square_avg", "acc_delta"};

// ---- Rprop

constexpr Setting kRpropSettings[] = {rate(1e-2),
                                      {"eta_minus", 0.5, Setting::open_unit_interval},
                                      {"eta_plus", 1.2, Setting::above_one},
                                      {"step_size_min", 1e-6, Setting::positive_or_zero},
                                      {"step_size_max", 50, Setting::positive_or_zero},
                                      kMaximize};

constexpr const char* kRpropSlots[] = {"prev", "step_size"};

// ---- LARS

constexpr Setting kLarsSettings[] = {rate(1),
                                     kMomentum,
                                     decay(0),
                                     {"nesterov", 0, Setting::flag},
                                     {"trust_coefficient", 1e-3, Setting::positive_or_zero},
                                     epsilon(1e-8),
                                     kAlwaysAdapt,
                                     kMaximize};

uint32_t lars_slots_used(std::span<const double> settings) {
  return settings[LarsSettings::momentum] != 0 ? 0b1 : 0b0;
}

double lars_ratio(std::span<const double> setting, double param, double gradient) {
  const double weight_decay = setting[LarsSettings::weight_decay];
  if (!adapts(weight_decay, setting[LarsSettings::always_adapt])) return 1;
  if (param == 0 || gradient == 0) return 1;
  return setting[LarsSettings::trust_coefficient] * param /
         (gradient + weight_decay * param + setting[LarsSettings::eps]);
}

constexpr Trust kLarsTrust = {lars_ratio, false};

}  // namespace

constinit const Rule kSgdRule = {"sgd", kSgdSettings, kSgdSlots, sgd_slots_used, prepare_sgd};
constinit const Rule kRmspropRule = {"rmsprop", kRmspropSettings, kRmspropSlots, rmsprop_slots_used,
                                     prepare_rmsprop};
constinit const Rule kAdagradRule = {"adagrad", kAdagradSettings, kAdagradSlots, always_uses<1>,
                                     prepare_adagrad};
constinit const Rule kAdadeltaRule = {"adadelta", kAdadeltaSettings, kAdadeltaSlots, always_uses<2>,
                                      prepare_adadelta};
constinit const Rule kRpropRule = {"rprop", kRpropSettings, kRpropSlots, always_uses<2>,
                                   prepare_rprop};
constinit const Rule kLarsRule = {"lars",       kLarsSettings, kSgdSlots,  lars_slots_used,
                                  prepare_lars, nullptr,       &kLarsTrust};

}  // namespace zero
