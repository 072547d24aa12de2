// SPDX-License-Identifier: Apache-2.0
#include "base/secret.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr size_t kSha256BlockBytes = 64;
constexpr size_t kRounds = 64;

// The first 32 bits of the fractional parts of roots of the first primes: square roots for the
// state, and cube roots for the rounds.
constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<uint32_t, kRounds> kConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* bytes) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<uint32_t>(bytes[i]);
  return word;
}

void put_big_endian(uint64_t value, std::span<std::byte> out) {
  for (size_t i = out.size(); i-- > 0; value >>= 8) out[i] = static_cast<std::byte>(value & 0xff);
}

void compress(std::array<uint32_t, 8>& state, const std::byte* block) {
  std::array<uint32_t, kRounds> w;
  for (size_t t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
  for (size_t t = 16; t < kRounds; ++t) {
    const uint32_t early = w[t - 15], late = w[t - 2];
    w[t] = w[t - 16] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ early >> 3) + w[t - 7] +
           (std::rotr(late, 17) ^ std::rotr(late, 19) ^ late >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < kRounds; ++t) {
    const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                         ((e & f) ^ (~e & g)) + kConstants[t] + w[t];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + one;
    d = c;
    c = b;
    b = a;
    a = one + two;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

}  // namespace

Sha256 sha256(std::span<const std::byte> message) {
  // The digest covers the message, a one bit, zeros up to a whole block, and the length of the
  // message in bits.
  std::vector<std::byte> padded(message.begin(), message.end());
  padded.push_back(std::byte{0x80});
  padded.resize((padded.size() + 8 + kSha256BlockBytes - 1) / kSha256BlockBytes *
                kSha256BlockBytes);
  put_big_endian(uint64_t{message.size()} * 8, std::span(padded).last(8));

  std::array<uint32_t, 8> state = kStart;
  for (size_t at = 0; at < padded.size(); at += kSha256BlockBytes)
    compress(state, padded.data() + at);
  Sha256 digest;
  for (size_t i = 0; i < state.size(); ++i)
    put_big_endian(state[i], std::span(digest).subspan(4 * i, 4));
  return digest;
}

Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  std::array<std::byte, kSha256BlockBytes> block{};
  const Sha256 short_key = key.size() > block.size() ? sha256(key) : Sha256{};
  if (key.size() > block.size()) key = short_key;
  std::ranges::copy(key, block.begin());
  const auto digest_behind = [&](std::byte pad, std::span<const std::byte> text) {
    std::vector<std::byte> whole;
    for (const std::byte one : block) whole.push_back(one ^ pad);
    whole.insert(whole.end(), text.begin(), text.end());
    return sha256(whole);
  };
  return digest_behind(std::byte{0x5c}, digest_behind(std::byte{0x36}, message));
}

bool equal_in_constant_time(const Sha256& a, const Sha256& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

Status draw_random(std::span<std::byte> out) {
  const ssize_t got =
      // Wait: kInterruptedMs; the kernel has had random bits since it started.
      uninterrupted([&] { return os().getrandom(out.data(), out.size(), 0); }, kInterruptedMs);
  if (got == static_cast<ssize_t>(out.size())) return {};
  return Status(ZERO_ERR_SYSTEM, text("getrandom: ", errno_text(errno)));
}

}  // namespace zero
