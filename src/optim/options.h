// SPDX-License-Identifier: Apache-2.0
// An optimizer's options in the library's own words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "kernels/step_state.h"
#include "optim/custom.h"
#include "rules/rule.h"

namespace zero {

// ---- The factor that an engine multiplies its loss by, so that small gradients survive in 16
// bits, and how it follows what the steps find. Every rank has the same one, as it sees the same
// counts.

struct LossScaleOptions {
  double initial = 0;  // 0: the scale stays as it is set
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  bool dynamic() const { return initial > 0; }
};

struct LossScale {
  double scale = 1;
  int64_t good_steps = 0;  // since the scale last changed
};

// ---- The one range of step counts: what a program sets, a checkpoint holds and a load takes.

/// 2^53: up to there a double is exact.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

// ---- The options of an optimizer.

struct OptimizerOptions {
  const Rule* rule = nullptr;
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;  // its number: the kernel's place in the table
  std::shared_ptr<const CustomRule> custom;  // whose rule it is, with ZERO_OPTIMIZER_CUSTOM
  int32_t partition = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 33'554'432;
  double max_grad_norm = 0;  // 0: off
  double grad_norm_type = 2;
  int32_t nonfinite = ZERO_NONFINITE_IGNORE;
  int32_t master = ZERO_MASTER_FLOAT32;
  DType wire = DType::none;     // what gradients are rounded to before they are summed
  double predivide_factor = 1;  // a power of two, by which they are divided for that
  DType share = DType::none;    // what fp32 parameters are rounded to
  int32_t uneven_inputs = ZERO_UNEVEN_OFF;
  LossScaleOptions loss_scale;
  bool overlap_gather = false;
  int threads = 0;   // 0: zero_create chooses
  std::string line;  // what ranks must agree on: "optimizer adamw\tpartition 0\t..."
};

}  // namespace zero
