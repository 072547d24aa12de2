// SPDX-License-Identifier: Apache-2.0
// A parsed manifest as bytes, for ranks that have not parsed it: all that it says, in the order of
// its members.
#pragma once

#include <string>
#include <string_view>

#include "state/manifest.h"

namespace zero {

std::string pack_manifest(const Manifest& manifest);

/// ZERO_ERR_INTERNAL if these are not exactly what pack_manifest made.
Result<Manifest> unpack_manifest(std::string_view bytes);

}  // namespace zero
