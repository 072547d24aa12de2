// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) of short texts: for proofs between ranks, where
// somebody may want to forge one. No system library has them without a new need at run time.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/status.h"

namespace zero {

using Sha256 = std::array<std::byte, 32>;

Sha256 sha256(std::span<const std::byte> message);
Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Compares in a time that does not depend on where they differ.
bool equal_in_constant_time(const Sha256& a, const Sha256& b);

// ---- Bits that nobody can guess.

/// Fills `out`, at most 256 bytes: so many the kernel gives whole or not at all. Fails with
/// ZERO_ERR_SYSTEM.
Status draw_random(std::span<std::byte> out);

}  // namespace zero
