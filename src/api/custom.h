// SPDX-License-Identifier: Apache-2.0
// An update rule of the caller's, as the header has it.
#pragma once

#include <memory>

#include "optim/custom.h"
#include "zero.h"

namespace zero::api {

/// Its function is only called through what catches exceptions.
Result<std::shared_ptr<const CustomRule>> read_custom(const zero_custom_optimizer* given);

}  // namespace zero::api
