// SPDX-License-Identifier: Apache-2.0
// Compiles XXH3 from the system's header, so that the library needs no other library at run time.
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace zero {

uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Digest hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};  // the order in which xxhsum prints them
}

std::string hex(uint64_t value) {
  std::string digits(16, '0');
  for (size_t i = digits.size(); i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

std::string hex(const Digest& digest) { return hex(digest[0]) + hex(digest[1]); }

}  // namespace zero
