// SPDX-License-Identifier: Apache-2.0
// The commonest refusals, each with the parts of its sentence.
#pragma once

#include "base/status.h"
#include "base/text.h"

namespace zero {

/// ZERO_ERR_ARGUMENT.
template <class... Parts>
Status bad_argument(const Parts&... parts) {
  return {ZERO_ERR_ARGUMENT, text(parts...)};
}

/// ZERO_ERR_STATE.
template <class... Parts>
Status wrong_state(const Parts&... parts) {
  return {ZERO_ERR_STATE, text(parts...)};
}

/// ZERO_ERR_UNSUPPORTED.
template <class... Parts>
Status unsupported(const Parts&... parts) {
  return {ZERO_ERR_UNSUPPORTED, text(parts...)};
}

/// ZERO_ERR_INTERNAL.
template <class... Parts>
Status internal_error(const Parts&... parts) {
  return {ZERO_ERR_INTERNAL, text(parts...)};
}

/// ZERO_ERR_CKPT_INVALID.
template <class... Parts>
Status invalid(const Parts&... parts) {
  return {ZERO_ERR_CKPT_INVALID, text(parts...)};
}

}  // namespace zero
