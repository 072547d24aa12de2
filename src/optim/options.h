// SPDX-License-Identifier: Apache-2.0
// The options of an optimizer, in the types that the library uses internally.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "kernels/step_state.h"
#include "optim/custom.h"
#include "rules/rule.h"

namespace zero {

// ---- The factor by which an engine multiplies its loss, so that small gradients do not underflow
// in 16 bits. A dynamic scale changes with the results of the steps. It is the same on every rank,
// because all ranks get the same counts.

struct LossScaleOptions {
  double initial = 0;  // 0: the scale is not dynamic
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  bool dynamic() const { return initial > 0; }
};

struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  // since the scale last changed
};

// ---- The largest step count that programs can set and that checkpoints and loads accept.

/// 2^53. A double represents all integers up to this one exactly.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

// ---- The options of an optimizer.

struct OptimizerOptions {
  const Rule* rule = nullptr;                // of groups that do not have their own
  std::shared_ptr<const CustomRule> custom;  // owns `rule`, with ZERO_OPTIMIZER_CUSTOM
  int32_t partition = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 33'554'432;
  double max_grad_norm = 0;  // 0: off
  double grad_norm_type = 2;
  int32_t nonfinite = ZERO_NONFINITE_IGNORE;
  int32_t master = ZERO_MASTER_FLOAT32;
  DType wire = DType::none;     // gradients are rounded to this type before they are summed
  double predivide_factor = 1;  // a power of two that divides gradients before they are rounded
  DType share = DType::none;    // fp32 parameters are rounded to this type
  int32_t uneven_inputs = ZERO_UNEVEN_OFF;
  LossScaleOptions loss_scale;
  bool overlap_gather = false;
  int32_t instances = 1;  // copies of the state, each divided over world / instances ranks
  int threads = 0;        // 0: zero_create chooses
  std::string line;       // "optimizer adamw\tpartition 0\t..."; the same on all ranks
};

}  // namespace zero
