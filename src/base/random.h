// SPDX-License-Identifier: Apache-2.0
// Bits that nobody can guess.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace zero {

/// Fill `out`, at most 256 bytes, which the kernel gives whole or not at all.
Status draw_random(std::span<std::byte> out);

}  // namespace zero
