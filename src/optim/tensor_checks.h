// SPDX-License-Identifier: Apache-2.0
// Checks that apply to every registered tensor, which is a parameter or a buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/comm.h"

namespace zero {

/// Returns ZERO_ERR_ARGUMENT: "parameter name 'w' is empty". `kind` is "parameter" or "buffer".
Status bad_tensor(std::string_view kind, std::string_view name, const char* why);

/// Returns the number of elements. Fails with ZERO_ERR_ARGUMENT if the name or the shape is
/// invalid.
Result<int64_t> count_elements(std::string_view kind, std::string_view name,
                               std::span<const int64_t> shape);

/// Names a tensor in a text, for example "the gradient of parameter 'w'".
struct TensorName {
  const char* kind;
  std::string_view name;
};
inline constexpr const char* kGradientOf = "the gradient of parameter";
void append_text(std::string& out, const TensorName& of);

/// Fails with ZERO_ERR_ARGUMENT if `memory` is not aligned to elements of `dtype`.
Status check_aligned(const void* memory, DType dtype, const TensorName& what);

/// Fails unless the comm's device can access the memory, and the memory lies either completely
/// inside or completely outside an arena. Null is allowed.
Status check_tensor_memory(const Comm& comm, const TensorName& what, const void* memory,
                           size_t bytes);

/// Fails with ZERO_ERR_ARGUMENT if the kinds of memory show that parameter and gradient are
/// swapped.
Status check_not_swapped(const Comm& comm, std::string_view param, const void* data,
                         const void* grad);

}  // namespace zero
