// SPDX-License-Identifier: Apache-2.0
// The options of an optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/step_state.h"
#include "optim/custom.h"
#include "rules/rule.h"
#include "zero.h"

namespace zero {

// ---- The factor by which an engine multiplies its loss, so that small gradients do not underflow
// in 16 bits. A dynamic scale changes with the results of the steps. It is the same on every rank,
// because all ranks get the same counts.

struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  // since the scale last changed
};

// ---- The largest step count that programs can set and that checkpoints and loads accept.

/// 2^53. A double represents all integers up to this one exactly.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

// ---- The options of an optimizer.

/// The options of zero_create with the defaults in place of zeros. `optimizer`, `custom` and the
/// settings are not used, because `rule` and the groups have them.
struct OptimizerOptions : zero_options {
  OptimizerOptions();

  const Rule* rule = nullptr;                     // of groups that do not have their own
  std::shared_ptr<const CustomRule> custom_rule;  // owns `rule`, with ZERO_OPTIMIZER_CUSTOM
  std::string line;  // "optimizer adamw\tpartition 0\t..."; the same on all ranks

  /// Gradients are rounded to this type before they are summed.
  DType wire() const { return static_cast<DType>(wire_dtype); }
  /// Parameters of fp32 are rounded to this type.
  DType share() const { return static_cast<DType>(share_dtype); }
  bool scales_loss() const { return loss_scale > 0; }
};

/// Reads all options except the rule, which must have been read. Zeros leave their defaults.
Status read_options(const zero_options& given, OptimizerOptions& options);

}  // namespace zero
