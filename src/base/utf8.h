// SPDX-License-Identifier: Apache-2.0
// Names travel in JSON, so they must be UTF-8.
#pragma once

#include <string_view>

namespace zero {

/// True if `text` is well-formed UTF-8: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace zero
