// SPDX-License-Identifier: Apache-2.0
// The index of a model in several files, which says in which of them each tensor is.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace zero::tool {

/// Returns for each tensor the name of its file, which lies beside the index. Fails with
/// ZERO_ERR_CKPT_INVALID.
Result<std::map<std::string, std::string>> parse_model_index(std::string_view json);

}  // namespace zero::tool
