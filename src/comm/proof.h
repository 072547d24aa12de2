// SPDX-License-Identifier: Apache-2.0
// How a rank and rank 0 show each other that they know a word. The word never travels, and what
// does is good for one connection: each side draws a nonce for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/secret.h"

namespace zero {

using Nonce = std::array<std::byte, 16>;
using Proof = Sha256;

struct Nonces {
  Nonce guest{}, root{};
};

enum class Role : uint32_t { guest = 1, root };

/// What `role` sends on the connection of the guest `rank`.
Proof prove(std::span<const std::byte> word, Role role, int32_t rank, const Nonces& nonces);
inline bool proves(const Proof& given, std::span<const std::byte> word, Role role, int32_t rank,
                   const Nonces& nonces) {
  return equal_in_constant_time(given, prove(word, role, rank, nonces));
}

}  // namespace zero
