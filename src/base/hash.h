// SPDX-License-Identifier: Apache-2.0
// XXH3 hashes, which detect accidental differences but do not protect against tampering.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zero {

using Digest = std::array<uint64_t, 2>;

uint64_t hash64(std::span<const std::byte> bytes);
Digest hash128(std::span<const std::byte> bytes);

/// Return 16 or 32 lower-case hexadecimal digits.
std::string hex(uint64_t value);
std::string hex(const Digest& digest);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace zero
