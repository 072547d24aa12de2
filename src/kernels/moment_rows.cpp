// SPDX-License-Identifier: Apache-2.0
// The rows of optimizers that average gradients: AdamW, Adam, Adamax, RAdam, NAdam, Lion, LAMB.
#include "kernels/moment_scalars.h"
#include "kernels/rows.h"

namespace zero {
namespace {

using namespace rows;

constexpr Setting kBeta1 = {"beta1", 0.9, Setting::unit_interval};
constexpr Setting kBeta2 = {"beta2", 0.999, Setting::unit_interval};
constexpr Setting kDecoupled = {"decoupled_weight_decay", 0, Setting::flag};

// ---- AdamW and Adam: the same settings and slots.

constexpr Setting kAmsgrad = {"amsgrad", 0, Setting::flag, true};
constexpr Setting kAdamwSettings[] = {rate(1e-3),  kBeta1,   kBeta2,   epsilon(1e-8),
                                      decay(0.01), kAmsgrad, kMaximize};
constexpr Setting kAdamSettings[] = {rate(1e-3), kBeta1,   kBeta2,   epsilon(1e-8),
                                     decay(0),   kAmsgrad, kMaximize};
constexpr const char* kAdamSlots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

uint32_t adam_slots_used(std::span<const double> settings) {
  return first_slots(settings[AdamSettings::amsgrad] != 0 ? 3 : 2);
}

// ---- Adamax

constexpr Setting kAdamaxSettings[] = {rate(2e-3),    kBeta1,   kBeta2,
                                       epsilon(1e-8), decay(0), kMaximize};

constexpr const char* kAdamaxSlots[] = {"exp_avg", "exp_inf"};

// ---- RAdam and NAdam: either kind of weight decay.

constexpr Setting kRadamSettings[] = {rate(1e-3), kBeta1,     kBeta2,   epsilon(1e-8),
                                      decay(0),   kDecoupled, kMaximize};

constexpr const char* kRadamSlots[] = {"exp_avg", "exp_avg_sq"};

constexpr Setting kNadamSettings[] = {
    rate(2e-3),    kBeta1,   kBeta2,
    epsilon(1e-8), decay(0), {"momentum_decay", 4e-3, Setting::positive_or_zero},
    kDecoupled,    kMaximize};

// ---- Lion

constexpr Setting kLionSettings[] = {
    rate(1e-4), kBeta1, {"beta2", 0.99, Setting::unit_interval}, decay(0), kMaximize};

constexpr const char* kLionSlots[] = {"exp_avg"};

// ---- LAMB

constexpr Setting kLambSettings[] = {rate(1e-3),  kBeta1,       kBeta2,   epsilon(1e-6),
                                     decay(0.01), kAlwaysAdapt, kMaximize};

constexpr const char* kLambSlots[] = {"exp_avg", "exp_avg_sq"};

double lamb_ratio(std::span<const double> setting, double param, double direction) {
  if (!adapts(setting[LambSettings::weight_decay], setting[LambSettings::always_adapt])) return 1;
  return param == 0 || direction == 0 ? 1 : param / direction;
}

constexpr Trust kLambTrust = {lamb_ratio, true};

}  // namespace

constinit const Rule kAdamwRule = {"adamw", kAdamwSettings, kAdamSlots, adam_slots_used,
                                   prepare_adamw};
constinit const Rule kAdamRule = {"adam", kAdamSettings, kAdamSlots, adam_slots_used, prepare_adam};
constinit const Rule kAdamaxRule = {"adamax", kAdamaxSettings, kAdamaxSlots, always_uses<2>,
                                    prepare_adamax};
constinit const Rule kRadamRule = {"radam", kRadamSettings, kRadamSlots, always_uses<2>,
                                   prepare_radam};
constinit const Rule kNadamRule = {"nadam",        kNadamSettings, kRadamSlots,
                                   always_uses<2>, prepare_nadam,  nadam_product};
constinit const Rule kLionRule = {"lion", kLionSettings, kLionSlots, always_uses<1>, prepare_lion};
constinit const Rule kLambRule = {"lamb",       kLambSettings, kLambSlots, always_uses<2>,
                                  prepare_lamb, nullptr,       &kLambTrust};

}  // namespace zero
