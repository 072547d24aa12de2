// SPDX-License-Identifier: Apache-2.0
// Element types: of parameters, gradients, state, and of files.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Bytes of one element; 0 for DType::none and unknown numbers.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::none:
      break;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

/// "float32", as in error texts.
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::none:
      break;
  }
  return "unknown";
}

/// "F32", as safetensors writes it.
constexpr std::string_view dtype_code(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f64:
      return "F64";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::none:
      break;
  }
  return {};
}

/// The DType of a code; DType::none for one that libzero does not use.
constexpr DType dtype_of_code(std::string_view code) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::i32, DType::i64, DType::bf16, DType::f16}) {
    if (dtype_code(dtype) == code) return dtype;
  }
  return DType::none;
}

}  // namespace zero
