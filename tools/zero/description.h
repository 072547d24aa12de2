// SPDX-License-Identifier: Apache-2.0
// Describes the contents of a checkpoint as JSON, but not where they are. inspect prints this, and
// a merged file with state contains it, so that it can be imported again.
#pragma once

#include <string>

#include "output.h"
#include "state/manifest.h"

namespace zero::tool {

/// The key of the description in the metadata of a safetensors file.
inline constexpr char kDescriptionKey[] = "zero";

Json describe(const Manifest& manifest);
/// Returns what describe() describes, with state that is in no file: slots have no slices. Fails
/// with ZERO_ERR_CKPT_INVALID for anything else, and for settings and slots that the rule lacks.
Result<Manifest> parse_description(const std::string& json);

}  // namespace zero::tool
