// SPDX-License-Identifier: Apache-2.0
// The most common failures, with messages made of parts.
#pragma once

#include "base/status.h"
#include "base/text.h"

namespace zero {

/// refusal<code>(parts...) returns a failure with `code` and the message made of `parts`.
template <Code code>
inline constexpr auto refusal = [](const auto&... parts) { return Status(code, text(parts...)); };

inline constexpr auto bad_argument = refusal<ZERO_ERR_ARGUMENT>;
inline constexpr auto wrong_state = refusal<ZERO_ERR_STATE>;
inline constexpr auto unsupported = refusal<ZERO_ERR_UNSUPPORTED>;
inline constexpr auto internal_error = refusal<ZERO_ERR_INTERNAL>;
inline constexpr auto invalid = refusal<ZERO_ERR_CKPT_INVALID>;

}  // namespace zero
