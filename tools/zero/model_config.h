// SPDX-License-Identifier: Apache-2.0
// Derives shapes from a config.json of Hugging Face's transformers.
#pragma once

#include <string>
#include <vector>

#include "model.h"

namespace zero::tool {

/// Fails, and names the key, if one is missing, wrong or not supported.
Result<std::vector<ModelTensor>> parse_config(const std::string& json);

}  // namespace zero::tool
