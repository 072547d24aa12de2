// SPDX-License-Identifier: Apache-2.0
#include "comm/proof.h"

#include <cerrno>

#include "base/os.h"
#include "base/text.h"

namespace zero {

Proof prove(std::span<const std::byte> word, Role role, int32_t rank, const Nonces& nonces) {
  struct {
    Role role;
    int32_t rank;
    Nonces nonces;
  } const said{role, rank, nonces};
  static_assert(sizeof said == 8 + sizeof nonces);  // no padding
  return hmac_sha256(word, std::as_bytes(std::span(&said, 1)));
}

Status draw_random(std::span<std::byte> out) {
  const ssize_t got =
      // Wait: kInterruptedMs; the kernel has had random bits since it started.
      uninterrupted([&] { return os().getrandom(out.data(), out.size(), 0); }, kInterruptedMs);
  if (got == static_cast<ssize_t>(out.size())) return {};
  return Status(ZERO_ERR_SYSTEM, text("drawing random bits: ", errno_text(errno)));
}

}  // namespace zero
