// SPDX-License-Identifier: Apache-2.0
// Copies sized structs across the boundary. Zeros are defaults. An older caller's struct may lack
// the tail, and the unknown tail of a newer caller's struct must be zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/refusals.h"
#include "optim/custom.h"
#include "optim/optimizer.h"
#include "zero.h"

namespace zero::api {

/// The name of a sized struct, and the size of its first version.
template <class Struct>
struct Sized;
#define ZERO_SIZED(type, oldest)                \
  template <>                                   \
  struct Sized<type> {                          \
    static constexpr const char* kName = #type; \
    static constexpr size_t kOldest = oldest;   \
  }
ZERO_SIZED(zero_buffer, sizeof(zero_buffer));
ZERO_SIZED(zero_checkpoint, sizeof(zero_checkpoint));
ZERO_SIZED(zero_comm_functions, sizeof(zero_comm_functions));
ZERO_SIZED(zero_comm_options, offsetof(zero_comm_options, device));
ZERO_SIZED(zero_custom_optimizer, sizeof(zero_custom_optimizer));
ZERO_SIZED(zero_failure, sizeof(zero_failure));
ZERO_SIZED(zero_group_options, offsetof(zero_group_options, optimizer));
ZERO_SIZED(zero_join_options, sizeof(zero_join_options));
ZERO_SIZED(zero_load_options, sizeof(zero_load_options));
ZERO_SIZED(zero_options, offsetof(zero_options, master));
ZERO_SIZED(zero_param, offsetof(zero_param, grad_dtype));
ZERO_SIZED(zero_plan, offsetof(zero_plan, grad_offsets));
ZERO_SIZED(zero_result, offsetof(zero_result, loss_scale));
ZERO_SIZED(zero_rule, sizeof(zero_rule));
ZERO_SIZED(zero_save_options, sizeof(zero_save_options));
ZERO_SIZED(zero_statistics, offsetof(zero_statistics, early_elements));
ZERO_SIZED(zero_step_options, sizeof(zero_step_options));
#undef ZERO_SIZED

inline constexpr size_t kLargestStruct = 65536;

template <class Struct>
bool has_size(size_t size) {
  return size >= Sized<Struct>::kOldest && size <= kLargestStruct;
}

template <class Struct>
Status wrong_size(size_t size) {
  return bad_argument(Sized<Struct>::kName, ".struct_size is ", size, "; this library needs ",
                      Sized<Struct>::kOldest, " to ", kLargestStruct,
                      ": call ZERO_INIT on it, then set its fields");
}

/// Returns the caller's struct as this version knows it. NULL gives zeros, which are the defaults.
template <class Struct>
Result<Struct> read_struct(const Struct* given) {
  Struct known{};
  if (given == nullptr) return known;
  const size_t size = given->struct_size;
  if (!has_size<Struct>(size)) return wrong_size<Struct>(size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < size; i++) {
    if (bytes[i] != 0)
      return unsupported(Sized<Struct>::kName, " sets a field that this version does not know");
  }
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  return known;
}

/// Returns what `read` returns for each struct of an array, whose stride is the first struct's
/// size.
template <class Item, class Struct, class Read>
Result<std::vector<Item>> read_array(const Struct* given, size_t count, const Read& read) {
  const size_t stride = given->struct_size;
  if (!has_size<Struct>(stride) || stride % alignof(Struct) != 0) return wrong_size<Struct>(stride);
  std::vector<Item> items;
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  for (size_t i = 0; i < count; i++) {
    const auto* one = reinterpret_cast<const Struct*>(bytes + i * stride);
    if (one->struct_size != stride)
      return bad_argument(Sized<Struct>::kName, ".struct_size is ", one->struct_size, " at index ",
                          i, " of an array, but ", stride,
                          " at index 0: call ZERO_INIT on each element");
    items.push_back(ZERO_TRY(read(one)));
  }
  return items;
}

/// Returns a field of the caller's struct before read_struct has checked it, or 0 if there is no
/// struct.
template <class Struct>
int32_t peek(const Struct* given, int32_t Struct::*field) noexcept {
  return given != nullptr && has_size<Struct>(given->struct_size) ? given->*field : 0;
}

/// Writes as much of `value` into a caller's out-struct as it has room for.
template <class Struct>
Status write_struct(Struct* out, Struct value, const char* name) {
  if (out == nullptr) return bad_argument(name, " is NULL");
  const size_t size = out->struct_size;
  if (!has_size<Struct>(size)) return wrong_size<Struct>(size);
  value.struct_size = size;
  std::memcpy(out, &value, std::min(size, sizeof(Struct)));
  return Status();
}

/// Writes values into an array of a caller's out-structs, all or none. The array's stride is the
/// first struct's size.
template <class Struct>
Status write_array(Struct* out, const std::vector<Struct>& values, const char* name) {
  if (values.empty()) return Status();
  const size_t stride = out->struct_size;
  auto* const bytes = reinterpret_cast<std::byte*>(out);
  const auto place = [&](size_t i) { return reinterpret_cast<Struct*>(bytes + i * stride); };
  for (size_t i = 0; i < values.size(); i++) {
    const size_t size = place(i)->struct_size;
    if (!has_size<Struct>(size) || size % alignof(Struct) != 0 || size != stride)
      return wrong_size<Struct>(size);
  }
  for (size_t i = 0; i < values.size(); i++) ZERO_TRY(write_struct(place(i), values[i], name));
  return Status();
}

// ---- Options and parameters, checked and converted to the library's own types.

struct ReadOptions {
  OptimizerOptions options;
  std::vector<double> settings;
};

Result<ReadOptions> read_optim_options(const zero_options* given, int32_t world);
/// Reads the rule and the settings of a group. Without its own rule, it begins as `initial`.
Result<Group> read_group(const zero_group_options& read, const Group& initial);
Result<std::vector<Param>> read_params(const zero_param* params, size_t count, bool with_names);

/// Reads a custom update rule. Its function is called only by code that catches exceptions.
Result<std::shared_ptr<const CustomRule>> read_custom(const zero_custom_optimizer* given);

}  // namespace zero::api
