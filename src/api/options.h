// SPDX-License-Identifier: Apache-2.0
// How sized structs cross the boundary: an older caller's missing tail keeps its defaults, a newer
// caller's unknown tail must be zero.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "base/text.h"

namespace zero::api {

/// Write `defaults` into the first `size` bytes of `*out`, zeros beyond what this version knows.
template <class Struct>
Status init_struct(Struct* out, size_t size, const Struct& defaults, const char* name) {
  if (out == nullptr) return Status(ZERO_ERR_ARGUMENT, text(name, " is NULL"));
  if (size < sizeof(size_t) || size > 65536) {
    return Status(ZERO_ERR_ARGUMENT, text(name, " has struct_size ", size, ": pass sizeof"));
  }
  std::memset(out, 0, size);
  std::memcpy(out, &defaults, std::min(size, sizeof(Struct)));
  out->struct_size = size;
  return Status();
}

/// The caller's struct as this version knows it; NULL gives `defaults`. `oldest`: its first
/// version's size.
template <class Struct>
Result<Struct> read_struct(const Struct* given, const Struct& defaults, size_t oldest,
                           const char* name) {
  Struct known = defaults;
  if (given == nullptr) return known;
  const size_t size = given->struct_size;
  if (size < oldest || size > 65536) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(name, ".struct_size is ", size, ", which no version has: call its _init"));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Struct); i < size; i++) {
    if (bytes[i] != 0) {
      return Status(ZERO_ERR_UNSUPPORTED,
                    text(name, " sets a field that this version does not know"));
    }
  }
  std::memcpy(&known, given, std::min(size, sizeof(Struct)));
  known.struct_size = sizeof(Struct);
  return known;
}

/// What `read` makes of each struct of an array, whose stride is the first one's size. `noun` is
/// for texts.
template <class Item, class Struct, class Read>
Result<std::vector<Item>> read_array(const Struct* given, size_t count, size_t oldest,
                                     const char* name, const char* noun, const Read& read) {
  const size_t stride = given->struct_size;
  if (stride < oldest || stride > 65536 || stride % alignof(Struct) != 0) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(name, ".struct_size is ", stride, ", which no version has: call its _init"));
  }
  std::vector<Item> items;
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  for (size_t i = 0; i < count; i++) {
    const auto* one = reinterpret_cast<const Struct*>(bytes + i * stride);
    if (one->struct_size != stride) {
      return Status(ZERO_ERR_ARGUMENT, text(noun, " ", i, " of the array has struct_size ",
                                            one->struct_size, ", the first has ", stride));
    }
    items.push_back(ZERO_TRY(read(one)));
  }
  return items;
}

/// A field of the caller's struct, which read_struct is yet to check; 0 where there is none.
template <class Struct>
int32_t peek(const Struct* given, int32_t Struct::*field, size_t oldest) noexcept {
  if (given == nullptr || given->struct_size < oldest || given->struct_size > 65536) return 0;
  return given->*field;
}

/// Write `value` into a caller's out-struct, as much as it has room for.
template <class Struct>
Status write_struct(Struct* out, Struct value, size_t oldest, const char* name) {
  if (out == nullptr) return Status(ZERO_ERR_ARGUMENT, text(name, " is NULL"));
  const size_t size = out->struct_size;
  if (size < oldest || size > 65536) {
    return Status(ZERO_ERR_ARGUMENT,
                  text(name, ".struct_size is ", size, ", which no version has: call its _init"));
  }
  value.struct_size = size;
  std::memcpy(out, &value, std::min(size, sizeof(Struct)));
  return Status();
}

}  // namespace zero::api
