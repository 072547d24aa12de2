// SPDX-License-Identifier: Apache-2.0
// Element types of parameters, gradients, state and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "zero.h"

namespace zero {

enum class DType : int32_t {
  none = 0,
  f32 = ZERO_FLOAT32,
  f64 = ZERO_FLOAT64,
  i32 = ZERO_INT32,
  i64 = ZERO_INT64,
  bf16 = ZERO_BFLOAT16,
  f16 = ZERO_FLOAT16,
};

struct DTypeFacts {
  size_t bytes;           // of one element
  const char* name;       // "float32", as in error messages
  std::string_view code;  // "F32", as in safetensors files
  bool floating = false;
};

/// In the order of ZERO_FLOAT32 and so on, after the entry of DType::none.
inline constexpr DTypeFacts kDTypeFacts[] = {
    {0, "unknown", ""},         {4, "float32", "F32", true}, {8, "float64", "F64", true},
    {4, "int32", "I32"},        {8, "int64", "I64"},         {2, "bfloat16", "BF16", true},
    {2, "float16", "F16", true}};
static_assert(ZERO_FLOAT32 == 1 && std::size(kDTypeFacts) == ZERO_FLOAT16 + 1);

/// Returns the facts of a type, or those of DType::none if the number is not a type.
constexpr const DTypeFacts& facts_of(DType dtype) {
  const auto number = static_cast<size_t>(dtype);
  return kDTypeFacts[number < std::size(kDTypeFacts) ? number : 0];
}
constexpr size_t size_of(DType dtype) { return facts_of(dtype).bytes; }
/// Returns the size of `elements` elements in bytes.
constexpr size_t size_of(DType dtype, int64_t elements) {
  return static_cast<size_t>(elements) * size_of(dtype);
}
constexpr bool is_floating(DType dtype) { return facts_of(dtype).floating; }
constexpr const char* dtype_name(DType dtype) { return facts_of(dtype).name; }
constexpr std::string_view dtype_code(DType dtype) { return facts_of(dtype).code; }

/// Returns the DType of a code, or DType::none if libzero does not support the code.
constexpr DType dtype_of_code(std::string_view code) {
  int32_t number = 0;
  for (const DTypeFacts& facts : kDTypeFacts) {
    if (facts.code == code) return static_cast<DType>(number);
    number++;
  }
  return DType::none;
}

}  // namespace zero
