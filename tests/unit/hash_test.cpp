// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace zero {
namespace {

// Published by the xxHash project: the digest of empty input.
TEST(Hash, empty_input_has_the_published_digest) {
  EXPECT_EQ(hex(hash64({})), "2d06800538d394c2");
  EXPECT_EQ(hex(hash128({})), "99aa06d3014798d86001c324468d497f");
}

// Computed by python-xxhash 4.1.0.
TEST(Hash, digests_are_those_of_the_reference_library) {
  EXPECT_EQ(hex(hash64(bytes_of("zero"))), "88a12c17a20f41d7");
  EXPECT_EQ(hex(hash128(bytes_of("zero"))), "ef33189bf15234a467a668927ef29c4e");
  const std::string long_text(100'000, 'z');
  EXPECT_EQ(hex(hash64(bytes_of(long_text))), "46aea077e4fefafb");
  EXPECT_EQ(hex(hash128(bytes_of(long_text))), "e8d9967efad88e1346aea077e4fefafb");
}

TEST(Hash, every_bit_counts) {
  std::vector<std::byte> bytes(300);
  const Digest digest = hash128(bytes);
  const uint64_t short_digest = hash64(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(hash128(bytes), digest) << bit;
    EXPECT_NE(hash64(bytes), short_digest) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_EQ(hash128(bytes), digest);
}

TEST(Hash, hexadecimal_keeps_leading_zeros) {
  EXPECT_EQ(hex(uint64_t{0x0123456789abcdef}), "0123456789abcdef");
  EXPECT_EQ(hex(uint64_t{0}), "0000000000000000");
  EXPECT_EQ(hex(Digest{1, 0xA0}), "000000000000000100000000000000a0");
}

}  // namespace
}  // namespace zero
