// SPDX-License-Identifier: Apache-2.0
// What shells offer on the tabulator key: the scripts in completions ask zero itself.
#pragma once

#include "usage.h"

namespace zero::tool {

inline constexpr const char* kComplete = "__complete";

/// Prints what the last word may become after those before it, as lines of a word, a tab and its
/// help. Nothing means the name of a file.
void complete(const CLI::App& app, Words words);

}  // namespace zero::tool
