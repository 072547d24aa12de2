// SPDX-License-Identifier: Apache-2.0
// What a checkpoint holds, as JSON, without where it lies: what inspect prints, and what a merged
// file with state says, so that it can be imported again.
#pragma once

#include <string>

#include "output.h"
#include "state/manifest.h"

namespace zero::tool {

/// The key of the description in the metadata of a safetensors file.
inline constexpr char kDescriptionKey[] = "zero";

Json describe(const Manifest& manifest);
/// Returns what describe() describes, with state that lies nowhere: a slot has no slices. Fails
/// with ZERO_ERR_CKPT_INVALID for anything else, and for settings and slots that the rule has not.
Result<Manifest> parse_description(const std::string& json);

}  // namespace zero::tool
