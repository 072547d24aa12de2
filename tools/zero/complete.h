// SPDX-License-Identifier: Apache-2.0
// Prints what shells offer on the tab key. The scripts in completions call zero itself.
#pragma once

#include "usage.h"

namespace zero::tool {

inline constexpr const char* kComplete = "__complete";

/// Prints possible completions of the last word after the words before it, as lines of a word, a
/// tab and its help. No output means a file name.
void complete(const CLI::App& app, Words words);

}  // namespace zero::tool
