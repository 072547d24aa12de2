// SPDX-License-Identifier: Apache-2.0
// What every registered tensor must be, parameter or buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/arena.h"
#include "comm/comm.h"
#include "device/memory.h"

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

/// ZERO_ERR_ARGUMENT, naming `what`, if `memory` begins in an arena and ends behind it.
Status not_whole(const std::string& what, const Arena& arena, const void* memory, size_t bytes);

/// Memory, null or not, that the comm's device can read and write, in no arena or whole in one.
template <class What>
Status check_tensor_memory(const Comm& comm, const What& what, const void* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) return Status();
  ZERO_TRY(check_memory(comm.device().get(), memory, bytes, what));
  bool whole = false;
  const std::shared_ptr<Arena> arena = find_arena(memory, bytes, &comm, &whole);
  return arena == nullptr || whole ? Status() : not_whole(what(), *arena, memory, bytes);
}

/// ZERO_ERR_ARGUMENT if the memory's kinds say that parameter and gradient are each other's.
Status check_not_swapped(const Comm& comm, std::string_view param, const void* data,
                         const void* grad);

}  // namespace zero
