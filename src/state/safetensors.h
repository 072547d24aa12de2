// SPDX-License-Identifier: Apache-2.0
// Builds and parses the header of a safetensors file. It builds the same header as the reference
// writer, and parses more strictly than the reference reader. A file is the length of the header in
// 8 little-endian bytes, the JSON header, and the tensor data.
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
  std::string dtype;  // such as "F32"
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in bytes, from the start of the data
};

struct SafetensorsHeader {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<TensorEntry> tensors;  // sorted by begin
  uint64_t data_start = 0;           // offset in the file

  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

inline constexpr uint64_t kLongestHeader = 100'000'000;  // the limit of the reference reader
inline constexpr size_t kMostTensors = 1'000'000;
inline constexpr uint64_t kDataAlignment = 4096;
/// The key of the metadata, which no tensor can have.
inline constexpr char kMetadataKey[] = "__metadata__";

/// Returns the size of an element of a dtype ("F32") in bytes, or 0 for an unknown dtype.
uint64_t dtype_bytes(std::string_view dtype);

/// Returns the number of elements of a shape, or nullopt if a dimension is negative or the product
/// is not below 2^63.
std::optional<int64_t> shape_elements(const std::vector<int64_t>& shape);

/// Returns the key by which tensors are sorted in a file: larger elements first, which aligns all
/// of them, then by name.
inline std::pair<size_t, std::string_view> place_in_file(size_t element_bytes,
                                                         std::string_view name) {
  return {SIZE_MAX - element_bytes, name};
}

/// Sorts the tensors, sets their offsets, and returns the file's bytes up to data_start, which is a
/// multiple of kDataAlignment. Fails with ZERO_ERR_UNSUPPORTED beyond the format's limits.
Result<std::string> build_safetensors_header(SafetensorsHeader& header);

/// The size of a file whose end is not known, such as a pipe.
inline constexpr uint64_t kEndless = UINT64_MAX;

/// Returns the length of the JSON header, from a file's first 8 bytes.
Result<uint64_t> safetensors_header_bytes(std::string_view first_8, uint64_t file_bytes);

/// Parses the JSON header, which is everything between the first 8 bytes and the data.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t file_bytes);

}  // namespace zero
