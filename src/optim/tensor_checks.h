// SPDX-License-Identifier: Apache-2.0
// What every registered tensor must be, parameter or buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/comm.h"

namespace zero {

/// ZERO_ERR_ARGUMENT: "parameter name 'w' is empty"; `kind` is "parameter" or "buffer".
Status bad_tensor(std::string_view kind, std::string_view name, const char* why);

/// The number of elements, of a sound name and shape.
Result<int64_t> count_elements(std::string_view kind, std::string_view name,
                               std::span<const int64_t> shape);

/// A tensor in texts: "the gradient of parameter 'w'".
struct TensorName {
  const char* kind;
  std::string_view name;
};
inline constexpr const char* kGradientOf = "the gradient of parameter";
void append_text(std::string& out, const TensorName& of);

/// Memory begins where an element may.
Status check_aligned(const void* memory, DType dtype, const TensorName& what);

/// Memory, null or not, that the comm's device can read and write, in no arena or whole in one.
Status check_tensor_memory(const Comm& comm, const TensorName& what, const void* memory,
                           size_t bytes);

/// ZERO_ERR_ARGUMENT if the memory's kinds say that parameter and gradient are each other's.
Status check_not_swapped(const Comm& comm, std::string_view param, const void* data,
                         const void* grad);

}  // namespace zero
