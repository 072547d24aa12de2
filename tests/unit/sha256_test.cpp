// SPDX-License-Identifier: Apache-2.0
// SHA-256 and HMAC, compared with the vectors of the standards, and with python3's hashlib if
// available.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/hash.h"
#include "base/secret.h"

namespace zero {
namespace {

std::string hex_of(const Sha256& digest) {
  std::string out;
  for (const std::byte one : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[static_cast<unsigned>(one) >> 4];
    out += kDigits[static_cast<unsigned>(one) & 15];
  }
  return out;
}

std::string digest(const std::string& message) { return hex_of(sha256(bytes_of(message))); }
std::string mac(const std::string& key, const std::string& message) {
  return hex_of(hmac_sha256(bytes_of(key), bytes_of(message)));
}

TEST(Sha256, equals_the_vectors_of_fips_180_4) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, hmac_equals_the_vectors_of_rfc_4231) {
  EXPECT_EQ(mac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(mac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(mac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(mac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(mac(std::string(131, '\xaa'),
                "This is a test using a larger than block-size key and a larger than block-size "
                "data. The key needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Sha256, digests_that_differ_in_any_bit_are_not_equal) {
  const Sha256 digest = sha256(bytes_of("abc"));
  EXPECT_TRUE(equal_in_constant_time(digest, sha256(bytes_of("abc"))));
  for (size_t bit = 0; bit < 8 * digest.size(); ++bit) {
    Sha256 other = digest;
    other[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(equal_in_constant_time(digest, other)) << "bit " << bit;
  }
}

/// The lengths include all around the ends of blocks, of the message and of the key.
TEST(Sha256, equals_pythons_at_every_length) {
  constexpr char kProgram[] =
      "python3 -c \"import hashlib,hmac\n"
      "a=hashlib.sha256()\n"
      "for n in range(200):\n"
      " m=bytes(i*7%251 for i in range(n))\n"
      " a.update(hashlib.sha256(m).digest()+hmac.new(m,m,'sha256').digest())\n"
      "print(a.hexdigest())\" 2>/dev/null";
  std::string said;
  {
    const std::unique_ptr<FILE, int (*)(FILE*)> python(popen(kProgram, "r"), pclose);
    char line[80] = {};
    if (python != nullptr && fgets(line, sizeof line, python.get()) != nullptr) said = line;
  }
  if (said.empty()) GTEST_SKIP() << "needs python3";
  std::string all;
  for (size_t n = 0; n < 200; ++n) {
    std::string message;
    for (size_t i = 0; i < n; ++i) message += static_cast<char>(i * 7 % 251);
    for (const Sha256& one :
         {sha256(bytes_of(message)), hmac_sha256(bytes_of(message), bytes_of(message))})
      all.append(reinterpret_cast<const char*>(one.data()), one.size());
  }
  EXPECT_EQ(digest(all) + "\n", said);
}

}  // namespace
}  // namespace zero
