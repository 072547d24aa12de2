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
// bits. It follows what the steps find. Every rank has the same one, because all see the same
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

// ---- The range of step counts, which is the same for programs that set one, for checkpoints and
// for loads.

/// 2^53: up to there a double is exact.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

// ---- The options of an optimizer.

struct OptimizerOptions {
  const Rule* rule = nullptr;
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;  // its number: the kernel's place in the table
  std::shared_ptr<const CustomRule> custom;  // owns `rule`, with ZERO_OPTIMIZER_CUSTOM
  int32_t partition = ZERO_PARTITION_EVEN;
  int64_t bucket_bytes = 33'554'432;
  double max_grad_norm = 0;  // 0: off
  double grad_norm_type = 2;
  int32_t nonfinite = ZERO_NONFINITE_IGNORE;
  int32_t master = ZERO_MASTER_FLOAT32;
  DType wire = DType::none;     // gradients are rounded to it before they are summed
  double predivide_factor = 1;  // a power of two; they are divided by it before that
  DType share = DType::none;    // fp32 parameters are rounded to it
  int32_t uneven_inputs = ZERO_UNEVEN_OFF;
  LossScaleOptions loss_scale;
  bool overlap_gather = false;
  int32_t instances = 1;  // of the state, each divided over world / instances ranks
  int threads = 0;        // 0: zero_create chooses
  std::string line;       // ranks must agree on it: "optimizer adamw\tpartition 0\t..."
};

}  // namespace zero
