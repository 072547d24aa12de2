// SPDX-License-Identifier: Apache-2.0
// What every registered tensor must be, parameter or buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace zero {

/// ZERO_ERR_ARGUMENT: "parameter name 'w' is empty"; `kind` is "parameter" or "buffer".
Status bad_tensor(std::string_view kind, std::string_view name, const char* why);

/// The number of elements, of a sound name and shape.
Result<int64_t> count_elements(std::string_view kind, std::string_view name,
                               std::span<const int64_t> shape);

/// `what` names the tensor: "the gradient of parameter 'w'".
Status not_aligned(std::string_view what, DType dtype);

/// Memory begins where an element may. `what()` is asked only for the text.
template <class What>
Status check_aligned(const void* memory, DType dtype, const What& what) {
  if (reinterpret_cast<uintptr_t>(memory) % size_of(dtype) == 0) return Status();
  return not_aligned(what(), dtype);
}

}  // namespace zero
