// SPDX-License-Identifier: Apache-2.0
#include "comm/proof.h"

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

}  // namespace zero
