// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file. It is built as by the reference writer, and parsed more
// strictly than by the reference reader. The format: 8 bytes little-endian header length, JSON
// header, tensor data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace zero {

struct TensorEntry {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<TensorEntry> tensors;  // by rising begin
  uint64_t data_start = 0;           // byte of the file

  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

inline constexpr uint64_t kLongestHeader = 100'000'000;  // the reference reader's own limit
inline constexpr size_t kMostTensors = 1'000'000;
inline constexpr uint64_t kDataAlignment = 4096;
/// The key of the metadata, which no tensor can have.
inline constexpr char kMetadataKey[] = "__metadata__";

/// Returns the bytes of an element of a dtype ("F32"), 0 for an unknown one.
uint64_t dtype_bytes(std::string_view dtype);

/// Returns the elements of a shape, or nullopt if a dimension is negative or the product is not
/// below 2^63.
std::optional<int64_t> shape_elements(const std::vector<int64_t>& shape);

/// Returns the key by which tensors are sorted in a file: larger elements first, so that all are
/// aligned, then by name.
inline std::pair<size_t, std::string_view> place_in_file(size_t element_bytes,
                                                         std::string_view name) {
  return {SIZE_MAX - element_bytes, name};
}

/// Sorts the tensors, gives them their places, and returns the file's bytes up to data_start, a
/// multiple of kDataAlignment. Fails with ZERO_ERR_UNSUPPORTED beyond the format's limits.
Result<std::string> build_safetensors_header(SafetensorsHeader& header);

/// Stands for the bytes of a file whose end is not known: a pipe.
inline constexpr uint64_t kEndless = UINT64_MAX;

/// Returns the length of the JSON header, from a file's first 8 bytes.
Result<uint64_t> safetensors_header_bytes(std::string_view first_8, uint64_t file_bytes);

/// Parses the JSON header (all that lies between the first 8 bytes and the data).
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t file_bytes);

}  // namespace zero
