// SPDX-License-Identifier: Apache-2.0
// Reads the index of a model in several files, which says which file has each tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace zero::tool {

/// Returns the file name for each tensor. The files are next to the index. Fails with
/// ZERO_ERR_CKPT_INVALID.
Result<std::map<std::string, std::string>> parse_model_index(std::string_view json);

}  // namespace zero::tool
