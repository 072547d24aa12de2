// SPDX-License-Identifier: Apache-2.0
// Reads the number of parameters that a word gives for a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zero::tool {

/// Returns the number in "7B", "1.5b", "124M", "350k", "7e9" or "6738415616", or nothing.
std::optional<int64_t> parameters_of(std::string_view word);

}  // namespace zero::tool
