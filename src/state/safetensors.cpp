// SPDX-License-Identifier: Apache-2.0
#include "state/safetensors.h"

#include <algorithm>

#include "base/checked.h"
#include "state/json.h"

namespace zero {
namespace {

constexpr size_t kLongestKey = 8192;

struct Offsets {
  template <class>
  static constexpr JsonType type() {
    return {.kind = JsonType::array,
            .item = &kJsonType<uint64_t>,
            .add = [](void* to, std::string_view, size_t before) -> Result<void*> {
              if (before == 2) return invalid("more than two offsets");
              TensorEntry& tensor = *static_cast<TensorEntry*>(to);
              return before == 0 ? &tensor.begin : &tensor.end;
            },
            .close =
                [](void*, size_t offsets) {
                  return offsets == 2 ? Status() : invalid("data_offsets are not two numbers");
                }};
  }
  static void write(JsonWriter& json, const TensorEntry& tensor) {
    json.open('[').value(static_cast<int64_t>(tensor.begin));
    json.value(static_cast<int64_t>(tensor.end)).close(']');
  }
};

Status check_entry(const TensorEntry& tensor) {
  const uint64_t element = dtype_bytes(tensor.dtype);
  if (element == 0) return invalid("unknown dtype ", shown(tensor.dtype));
  const auto elements = shape_elements(tensor.shape);
  if (!elements) return invalid("the shape's product overflows");
  const auto bytes = checked_multiply(static_cast<uint64_t>(*elements), element);
  if (!bytes) return invalid("the shape's bytes overflow");
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes)
    return invalid("data_offsets [", tensor.begin, ", ", tensor.end, "] do not span the ", *bytes,
                   " bytes of its shape");
  return {};
}

using EntryFields =
    Object<Field<"dtype", &TensorEntry::dtype>, Field<"shape", &TensorEntry::shape, Shape<64>>,
           Part<"data_offsets", Offsets>>;

}  // namespace

template <>
struct JsonForm<TensorEntry> : EntryFields {
  template <class>
  static constexpr JsonType type() {
    JsonType type = EntryFields::type<TensorEntry>();
    type.close = [](void* to, size_t) { return check_entry(*static_cast<TensorEntry*>(to)); };
    return type;
  }
};

template <>
struct JsonForm<SafetensorsHeader> {
  using Metadata = Optional<kMetadataKey, &SafetensorsHeader::metadata>;
  static constexpr JsonType::Member kMembers[] = {Metadata::member<SafetensorsHeader>()};

  template <class>
  static constexpr JsonType type() {
    return {.kind = JsonType::object,
            .members = kMembers,
            .item = &kJsonType<TensorEntry>,
            .add = [](void* to, std::string_view key, size_t) -> Result<void*> {
              auto& tensors = static_cast<SafetensorsHeader*>(to)->tensors;
              if (key.empty()) return invalid("a tensor has an empty name");
              if (key.size() > kLongestKey)
                return invalid("a name is longer than ", kLongestKey, " bytes");
              if (tensors.size() == kMostTensors)
                return invalid("more than ", kMostTensors, " tensors");
              tensors.emplace_back().name = key;
              return &tensors.back();
            }};
  }
  static void write(JsonWriter& json, const SafetensorsHeader& header) {
    json.open('{');
    JsonForm<decltype(header.metadata)>::write(json.key(kMetadataKey), header.metadata);
    for (const TensorEntry& tensor : header.tensors)
      EntryFields::write(json.key(tensor.name), tensor);
    json.close('}');
  }
};

namespace {

/// Checks that the first tensor begins at 0, that each other tensor begins where the previous one
/// ends, and that the last one ends with the file.
Status check_contiguous(const SafetensorsHeader& header, uint64_t file_bytes) {
  uint64_t end = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != end) {
      return invalid(
          shown(tensor.name), " begins at byte ", tensor.begin, " of the data, ",
          tensor.begin < end ? "inside another tensor, which ends" : "after a gap from byte ",
          tensor.begin < end ? " at byte " : "", end);
    }
    end = tensor.end;
  }
  const uint64_t data_bytes = file_bytes - header.data_start;
  if (end == data_bytes || file_bytes == kEndless) return {};
  return invalid("its tensors hold ", end, " bytes of data, but the file has ", data_bytes);
}

}  // namespace

uint64_t dtype_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, uint64_t> kDtypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2},
      {"U16", 2},  {"F16", 2}, {"BF16", 2}, {"I32", 4},     {"U32", 4},     {"F32", 4},
      {"F64", 8},  {"I64", 8}, {"U64", 8},  {"C64", 8},     {"F8_E8M0", 1}};
  for (const auto& [name, bytes] : kDtypes)
    if (name == dtype) return bytes;
  return 0;
}

std::optional<int64_t> shape_elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    const auto product = checked_multiply(elements, dimension);
    if (!product) return std::nullopt;
    elements = *product;
  }
  return elements;
}

Result<std::string> build_safetensors_header(SafetensorsHeader& header) {
  if (header.tensors.size() > kMostTensors)
    return unsupported(header.tensors.size(), " tensors for one file; at most ", kMostTensors,
                       " are allowed");
  std::ranges::sort(header.tensors, {}, [](const TensorEntry& tensor) {
    return place_in_file(dtype_bytes(tensor.dtype), tensor.name);
  });
  uint64_t end = 0;
  for (TensorEntry& tensor : header.tensors) {
    const auto elements = shape_elements(tensor.shape);
    const uint64_t element = dtype_bytes(tensor.dtype);
    if (!elements || element == 0) return internal_error("a tensor without size: " + tensor.name);
    const auto bytes = checked_multiply(static_cast<uint64_t>(*elements), element);
    const auto next = bytes ? checked_add(end, *bytes) : bytes;
    if (!next || *next > static_cast<uint64_t>(INT64_MAX))
      return unsupported("one file would hold 2^63 bytes or more");
    tensor.begin = end;
    tensor.end = end = *next;
  }
  JsonWriter json;
  JsonForm<SafetensorsHeader>::write(json, header);
  std::string head = json.take();
  header.data_start = round_up<uint64_t>(8 + head.size(), kDataAlignment);
  const uint64_t length = header.data_start - 8;
  if (length > kLongestHeader)
    return unsupported("the names of one file take ", length, " bytes; at most ", kLongestHeader,
                       " are allowed");
  std::string out(8, '\0');
  for (unsigned i = 0; i < 8; i++) out[i] = static_cast<char>(length >> (8 * i) & 0xff);
  out += head;
  out.resize(header.data_start, ' ');
  return out;
}

Result<uint64_t> safetensors_header_bytes(std::string_view first_8, uint64_t file_bytes) {
  if (first_8.size() < 8 || file_bytes < 8)
    return invalid("shorter than the 8 bytes of a header length");
  uint64_t length = 0;
  for (unsigned i = 0; i < 8; i++)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(first_8[i])) << (8 * i);
  if (length < 2 || length > kLongestHeader)
    return invalid("a header of ", length, " bytes, but it must be 2 to ", kLongestHeader,
                   ": this is not a safetensors file");
  if (length > file_bytes - 8)
    return invalid("a header of ", length, " bytes in a file of ", file_bytes);
  return length;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t file_bytes) {
  SafetensorsHeader header;
  constexpr JsonLimits kLimits = {
      .max_depth = 4, .ignore_unknown_keys = false, .most_keys = kMostTensors + 2};
  ZERO_TRY(parse_json(json, kLimits, kJsonType<SafetensorsHeader>, &header).within("header"));
  header.data_start = 8 + json.size();
  if (header.data_start > file_bytes) return invalid("the header is longer than the file");
  // A tensor without elements has the same offset as a neighbour, and is sorted before it.
  std::ranges::sort(header.tensors, {},
                    [](const TensorEntry& tensor) { return std::pair(tensor.begin, tensor.end); });
  ZERO_TRY(check_contiguous(header, file_bytes));
  return header;
}

}  // namespace zero
