// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) of short texts, for proofs between ranks that an
// attacker must not be able to forge. Using a system library would add a run-time dependency.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/status.h"

namespace zero {

using Sha256 = std::array<std::byte, 32>;

Sha256 sha256(std::span<const std::byte> message);
Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Compares in a time that does not depend on the contents.
bool equal_in_constant_time(const Sha256& a, const Sha256& b);

// ---- Secure random bits.

/// Fills `out`, which has at most 256 bytes, because the kernel returns this many completely or not
/// at all. Fails with ZERO_ERR_SYSTEM.
Status draw_random(std::span<std::byte> out);

}  // namespace zero
