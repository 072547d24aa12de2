// SPDX-License-Identifier: Apache-2.0
// Writes and parses zero.json, checks its checksum and its consistency, writes the index, and
// formats numbers.
#include "state/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>
#include <unordered_set>

#include "base/refusals.h"
#include "base/text.h"
#include "optim/optimizer.h"
#include "optim/options.h"
#include "state/file.h"
#include "state/json.h"
#include "state/safetensors.h"

namespace zero {

// ---- These lists describe zero.json once: they define what is written, read and rejected. A new
// field must be optional, because older checkpoints lack it.

template <>
struct JsonForm<double> {
  static Status read(double& to, std::string_view from) {
    return parse_hex_double(from, to) ? Status() : invalid("is not a hexadecimal number");
  }
  static void write(JsonWriter& json, double value) { json.value(hex_double(value)); }
};

struct Product : JsonForm<double> {
  static Status read(double& to, std::string_view from) {
    ZERO_TRY(JsonForm<double>::read(to, from));
    return to >= 0 && to <= 1 ? Status() : invalid("is not in [0, 1]");
  }
};

struct Steps : JsonForm<int64_t> {
  static Status read(int64_t& to, int64_t from) {
    if (from > kMostSteps) return invalid("is ", from, ", but must be at most 2^53");
    return JsonForm<int64_t>::read(to, from);
  }
};

/// The digits of a checksum or a digest.
template <size_t kDigits>
struct Hex {
  template <class Value>
  static Status read(Value& to, std::string_view from) {
    if (parse_hex(from, to)) return {};
    return invalid("is not ", kDigits, " hexadecimal digits");
  }
  template <class Value>
  static void write(JsonWriter& json, const Value& value) {
    json.value(hex(value));
  }
};

/// A number that always has the same value.
template <int64_t kValue>
struct Constant {
  static Status read(Manifest&, int64_t from) {
    if (from == kValue) return {};
    return invalid("is ", from, ", but must be ", kValue);
  }
  static void write(JsonWriter& json, const Manifest&) { json.value(kValue); }
};

struct FormatNumber : Constant<kFormat> {
  static Status read(Manifest& manifest, int64_t from) {
    manifest.format = from;
    if (from == kFormat || from == kFormatOfRules) return {};
    return unsupported("the checkpoint has format ", from, ", but this libzero reads ", kFormat,
                       " and ", kFormatOfRules,
                       from > kFormatOfRules ? ": use a newer libzero" : "");
  }
  static void write(JsonWriter& json, const Manifest& manifest) {
    json.value(manifest.needed_format());
  }
};

/// Stands for the trailer, which manifest_trailer() writes and parse_manifest() checks as bytes.
struct End {
  template <class>
  static constexpr JsonType type() {
    return {.kind = JsonType::object};
  }
  static void write(JsonWriter&, const Manifest&) {}
};

inline constexpr size_t kMostManifestDimensions = 16;
using ManifestShape = Shape<kMostManifestDimensions>;
template <class Item>
using Lines = Array<Item, Layout::lines>;

template <>
struct JsonForm<FileRecord> : Object<Field<"name", &FileRecord::name>,    //
                                     Field<"bytes", &FileRecord::bytes>,  //
                                     Field<"blocks", &FileRecord::blocks, Array<Hex<16>>>> {};

template <>
struct JsonForm<ManifestSlice>
    : Object<Field<"file", &ManifestSlice::file>, Field<"key", &ManifestSlice::key>,
             Field<"start", &ManifestSlice::start>, Field<"count", &ManifestSlice::count>> {};

template <>
struct JsonForm<ManifestSlot>
    : Object<Field<"name", &ManifestSlot::name>, Field<"slices", &ManifestSlot::slices>> {};

template <>
struct JsonForm<ManifestParam>
    : Object<Field<"name", &ManifestParam::name>, Field<"dtype", &ManifestParam::dtype>,
             Field<"shape", &ManifestParam::shape, ManifestShape>,
             Field<"group", &ManifestParam::group>, Field<"step", &ManifestParam::step, Steps>,
             Optional<"mu_product", &ManifestParam::mu_product, Product>,
             Field<"file", &ManifestParam::file>, Field<"slots", &ManifestParam::slots>> {};

template <>
struct JsonForm<ManifestBuffer>
    : Object<Field<"name", &ManifestBuffer::name>, Field<"dtype", &ManifestBuffer::dtype>,
             Field<"shape", &ManifestBuffer::shape, ManifestShape>,
             Field<"file", &ManifestBuffer::file>> {};

template <>
struct JsonForm<ManifestExtras>
    : Object<Field<"rank", &ManifestExtras::rank>, Field<"file", &ManifestExtras::file>> {};

template <>
struct JsonForm<SlotFormat> {
  static Status read(SlotFormat& to, std::string_view from) {
    to = SlotFormat::bf16;
    if (from == dtype_name(DType::bf16)) return {};
    return unsupported("is ", shown(from), ", which this libzero does not know");
  }
  static void write(JsonWriter& json, SlotFormat) { json.value(dtype_name(DType::bf16)); }
};

template <>
struct JsonForm<ManifestGroup>
    : Object<Optional<"optimizer", &ManifestGroup::rule>, Optional<"slots", &ManifestGroup::slots>,
             Optional<"state_dtype", &ManifestGroup::slot_format>,
             Field<"settings", &ManifestGroup::settings>> {};

using OptimizerFields = Object<Field<"name", &Manifest::rule>, Field<"options", &Manifest::options>,
                               Field<"groups", &Manifest::groups, Lines<JsonForm<ManifestGroup>>>,
                               Optional<"slots", &Manifest::slots>>;

template <>
struct JsonForm<Manifest>
    : ObjectIn<Layout::lines, Part<"zero_format", FormatNumber>,
               Field<"save_id", &Manifest::save_id, Hex<32>>, Field<"step", &Manifest::step, Steps>,
               Field<"skipped", &Manifest::skipped, Steps>, Field<"world", &Manifest::world>,
               Field<"created_by", &Manifest::created_by>,
               Part<"block_bytes", Constant<kBlockBytes>>, Part<"optimizer", OptimizerFields>,
               Field<"files", &Manifest::files, Lines<JsonForm<FileRecord>>>,
               Field<"params", &Manifest::params, Lines<JsonForm<ManifestParam>>>,
               Optional<"buffers", &Manifest::buffers, Lines<JsonForm<ManifestBuffer>>>,
               Optional<"extras", &Manifest::extras, Lines<JsonForm<ManifestExtras>>>,
               Part<"end", End>> {};

// ---- The file as a whole.

DType Manifest::dtype_of(const ManifestParam& param, const ManifestSlot& slot) const {
  const DType full = dtype_of_code(param.dtype);
  return slot.name == kMasterName
             ? sum_dtype(full)
             : slot_dtype(full, groups[static_cast<size_t>(param.group)].slot_format);
}

int64_t Manifest::needed_format() const {
  const auto differs = [](const ManifestGroup& group) {
    return !group.rule.empty() || group.slot_format != SlotFormat::full;
  };
  return std::ranges::any_of(groups, differs) ? kFormatOfRules : kFormat;
}

namespace {

constexpr JsonLimits kLimits = {.max_depth = 16, .ignore_unknown_keys = true, .most_keys = 1000};

/// Checks that the trailer is where write_manifest() puts it, and that it is byte for byte the
/// trailer of the body.
Status check_trailer(std::string_view bytes) {
  constexpr size_t kLongestTrailer = 80;
  const size_t from = bytes.size() - std::min(bytes.size(), kLongestTrailer);
  const size_t at = bytes.substr(from).rfind("\"end\":{");
  if (at == bytes.npos) return invalid("it does not end like a complete manifest");
  const std::string_view body = bytes.substr(0, from + at);
  if (bytes.substr(body.size()) == manifest_trailer(body)) return {};
  return invalid("its first ", body.size(),
                 " bytes do not match the length and checksum at its end");
}

// ---- These check that a manifest is consistent as a whole, which no single parser event shows.

constexpr size_t kLongestTensorName = 4096;

Status check_files(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const FileRecord& file : manifest.files) {
    if (!is_file_name(file.name) || file.name == kManifestName)
      return invalid("file ", shown(file.name), ": not a valid name for a checkpoint file");
    if (!names.insert(file.name).second)
      return invalid("file ", shown(file.name), " is listed twice");
    if (file.bytes == 0) return invalid("file ", shown(file.name), " has no bytes");
    if (file.blocks.size() != block_count(file.bytes))
      return invalid("file ", shown(file.name), ": ", file.blocks.size(), " checksums for ",
                     file.bytes, " bytes, which are ", block_count(file.bytes), " blocks");
  }
  return {};
}

bool holds_tensors(const Manifest& manifest, int32_t file) {
  const auto index = static_cast<size_t>(file);
  return index < manifest.files.size() && is_tensor_file(manifest.files[index].name);
}

/// Checks that the slices cover the parameter exactly once.
Status check_slices(const Manifest& manifest, const ManifestParam& param, ManifestSlot& slot) {
  const auto bad = [&](const auto&... parts) {
    return invalid("parameter ", shown(param.name), ", ", shown(slot.name), ": ", parts...);
  };
  std::ranges::sort(slot.slices, {}, &ManifestSlice::start);
  int64_t end = 0;
  for (const ManifestSlice& slice : slot.slices) {
    if (!holds_tensors(manifest, slice.file))
      return bad("file ", slice.file, " cannot hold tensors");
    if (slice.key.empty()) return bad("a slice has no key");
    if (slice.count == 0 && (param.count != 0 || slot.slices.size() != 1))
      return bad("an empty slice");
    if (slice.start != end)
      return bad(slice.start < end ? "two slices hold element " : "no slice holds element ",
                 std::min(slice.start, end));
    if (slice.count > param.count - end)
      return bad("a slice ends after element ", param.count, ", where the parameter ends");
    end += slice.count;
  }
  if (slot.slices.empty()) return bad("no slices");
  if (end != param.count) return bad("no slice holds element ", end);
  return {};
}

/// Checks the properties that parameters and buffers share. Sets the number of elements.
Status check_tensor(const Manifest& manifest, const char* kind, ManifestBuffer& tensor) {
  const auto bad = [&](const auto&... parts) {
    return invalid(kind, " ", shown(tensor.name), ": ", parts...);
  };
  if (tensor.name.empty() || tensor.name.size() > kLongestTensorName)
    return bad("a name of ", tensor.name.size(), " bytes");
  if (dtype_of_code(tensor.dtype) == DType::none)
    return bad("dtype ", shown(tensor.dtype), ", but must be F32, F64, BF16, F16, I32 or I64");
  const auto elements = shape_elements(tensor.shape);
  if (!elements || *elements > INT64_MAX / 8) return bad("the shape's product overflows");
  tensor.count = *elements;
  if (!holds_tensors(manifest, tensor.file))
    return bad("file ", tensor.file, " cannot hold tensors");
  return {};
}

Status check_param(const Manifest& manifest, ManifestParam& param) {
  ZERO_TRY(check_tensor(manifest, "parameter", param));
  const auto bad = [&](const auto&... parts) {
    return invalid("parameter ", shown(param.name), ": ", parts...);
  };
  if (!is_floating(dtype_of_code(param.dtype)) && (!param.slots.empty() || param.step != 0))
    return bad("dtype ", param.dtype, " cannot be trained, but it has state");
  if (static_cast<size_t>(param.group) >= manifest.groups.size())
    return bad("group ", param.group, " does not exist: there are ", manifest.groups.size());
  std::unordered_set<std::string_view> names;
  for (ManifestSlot& slot : param.slots) {
    if (slot.name.empty() || !names.insert(slot.name).second)
      return bad("slot ", shown(slot.name), " has no name or appears twice");
    ZERO_TRY(check_slices(manifest, param, slot));
  }
  return {};
}

Status check_extras(const Manifest& manifest) {
  std::set<int32_t> ranks, files;
  uint64_t all = 0;
  for (const ManifestExtras& extras : manifest.extras) {
    const int32_t rank = extras.rank, file = extras.file;
    const auto bad = [&](const auto&... parts) {
      return invalid("extras of rank ", rank, ": ", parts...);
    };
    if (rank >= manifest.world) return bad("the world is ", manifest.world);
    if (static_cast<size_t>(file) >= manifest.files.size() || holds_tensors(manifest, file))
      return bad("file ", file, " cannot hold extras");
    if (!ranks.insert(rank).second || !files.insert(file).second)
      return bad("they or file ", file, " appear twice");
    if (const uint64_t bytes = manifest.files[static_cast<size_t>(file)].bytes;
        bytes > kLongestExtrasFile)
      return bad("file ", file, " has ", bytes, " bytes; at most ", kLongestExtrasFile,
                 " are allowed");
    else
      all += bytes;
  }
  if (all <= kMostExtrasBytes) return {};
  return invalid("files of extras have ", all, " bytes; at most ", kMostExtrasBytes,
                 " are allowed");
}

/// Checks that no tensor of a file is used twice.
Status check_keys(const Manifest& manifest) {
  std::vector<std::pair<int32_t, std::string_view>> keys;
  for_each_tensor(
      manifest, [&](const ManifestTensor& tensor) { keys.emplace_back(tensor.file, tensor.key); });
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return {};
  return invalid("tensor ", shown(twice->second), " of file ", twice->first, " is used twice");
}

/// Fails unless the manifest is consistent as a whole. Sets the members that are not in the file,
/// and sorts slices.
Status check_manifest(Manifest& manifest) {
  if (manifest.format != manifest.needed_format())
    return invalid("its format is ", manifest.format, ", but its groups need ",
                   manifest.needed_format());
  if (manifest.world < 1) return invalid("the world is 0");
  ZERO_TRY(check_files(manifest));
  std::unordered_set<std::string_view> names;
  for (ManifestParam& param : manifest.params) {
    ZERO_TRY(check_param(manifest, param));
    if (!names.insert(param.name).second)
      return invalid("parameter ", shown(param.name), " is listed twice");
  }
  for (ManifestBuffer& buffer : manifest.buffers) {
    ZERO_TRY(check_tensor(manifest, "buffer", buffer));
    if (!names.insert(buffer.name).second)
      return invalid("buffer ", shown(buffer.name), " is listed twice, or is also a parameter");
  }
  ZERO_TRY(check_extras(manifest));
  return check_keys(manifest);
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  JsonWriter json;
  JsonForm<Manifest>::write(json, manifest);
  std::string out = json.take();
  // The comma and line break before the trailer belong to the bytes that the trailer covers.
  out.resize(out.size() - std::string_view("\"end\":}").size());
  return out += manifest_trailer(out);
}

Status write_manifest_file(const BlockFiles& files, const Manifest& manifest) {
  const std::string bytes = write_manifest(manifest);
  if (bytes.size() > kLongestManifest)
    return unsupported("the manifest has ", bytes.size(), " bytes; at most ", kLongestManifest,
                       " are allowed");
  return write_text(files, kManifestName, bytes).status();
}

Result<Manifest> parse_manifest(std::string_view bytes) {
  if (bytes.size() > kLongestManifest)
    return invalid("it has ", bytes.size(), " bytes; at most ", kLongestManifest, " are allowed");
  ZERO_TRY(check_trailer(bytes));
  Manifest manifest;
  ZERO_TRY(parse_json(bytes, kLimits, kJsonType<Manifest>, &manifest));
  ZERO_TRY(check_manifest(manifest));
  return manifest;
}

std::string manifest_trailer(std::string_view body) {
  return text("\"end\":{\"bytes\":", body.size(), ",\"xxh3\":\"", hex(hash64(bytes_of(body))),
              "\"}}\n");
}

std::string write_index(const Manifest& manifest) {
  std::vector<const ManifestBuffer*> tensors;
  for (const ManifestParam& param : manifest.params) tensors.push_back(&param);
  for (const ManifestBuffer& buffer : manifest.buffers) tensors.push_back(&buffer);
  int64_t bytes = 0;
  for (const ManifestBuffer* tensor : tensors)
    bytes += tensor->count * static_cast<int64_t>(dtype_bytes(tensor->dtype));
  JsonWriter json;
  json.open('{').key("metadata").open('{').key("total_size").value(bytes).close('}');
  json.line().key("weight_map").open('{');
  for (const ManifestBuffer* tensor : tensors)
    json.line().key(tensor->name).value(manifest.files[static_cast<size_t>(tensor->file)].name);
  return json.close('}').close('}').take() += '\n';
}

bool parse_hex_double(std::string_view text, double& value) {
  std::string_view digits = text;
  const bool negative = take_prefix(digits, "-");
  take_prefix(digits, "0x");
  value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::hex);
  if (negative) value = -value;
  return text == hex_double(value) && !std::isnan(value);
}

bool parse_hex(std::string_view text, uint64_t& value) {
  value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return text == hex(value);
}

bool parse_hex(std::string_view text, Digest& digest) {
  return text.size() == 32 && parse_hex(text.substr(0, 16), digest[0]) &&
         parse_hex(text.substr(16), digest[1]);
}

}  // namespace zero
