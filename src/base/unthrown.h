// SPDX-License-Identifier: Apache-2.0
// For destructors and others that must not throw, where memory has run out.
#pragma once

namespace zero {

/// What `body` answers; false if it throws.
template <class Body>
bool succeeds(const Body& body) noexcept {
  try {
    return body();
  } catch (...) {
    return false;
  }
}

}  // namespace zero
