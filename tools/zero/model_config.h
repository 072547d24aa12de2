// SPDX-License-Identifier: Apache-2.0
// The shapes that follow from a config.json of Hugging Face's transformers.
#pragma once

#include <string>
#include <vector>

#include "model.h"

namespace zero::tool {

/// Fails and names the key if one is missing or wrong, or if it says more than is known here.
Result<std::vector<ModelTensor>> parse_config(const std::string& json);

}  // namespace zero::tool
