// SPDX-License-Identifier: Apache-2.0
// Options and parameters as the header has them, checked and in the library's own words.
#pragma once

#include <memory>
#include <vector>

#include "optim/custom.h"
#include "optim/optimizer.h"
#include "zero.h"

namespace zero::api {

struct ReadOptions {
  OptimizerOptions options;
  std::vector<double> settings;
};

/// All but the rule, which is read. What is zero stays at its default.
Status read_options(const zero_options& given, OptimizerOptions& options);
Result<ReadOptions> read_optim_options(const zero_options* given, int32_t world);
Result<std::vector<Optimizer::NewParam>> read_params(const zero_param* params, size_t count,
                                                     bool with_names);

// ---- An update rule of the caller's, as the header has it.

/// Its function is only called through what catches exceptions.
Result<std::shared_ptr<const CustomRule>> read_custom(const zero_custom_optimizer* given);

}  // namespace zero::api
