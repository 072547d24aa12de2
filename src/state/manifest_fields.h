// SPDX-License-Identifier: Apache-2.0
// zero.json, described once: what is written, read and refused follows from these lists. A
// new field is optional, as older checkpoints lack it.
#pragma once

#include "optim/options.h"
#include "state/json.h"
#include "state/manifest.h"

namespace zero {

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
    if (from > kMostSteps) return invalid("is ", from, ", must be at most 2^53");
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

/// A number that is always the same.
template <int64_t kValue>
struct Constant {
  static Status read(Manifest&, int64_t from) {
    if (from == kValue) return {};
    return invalid("is ", from, ", must be ", kValue);
  }
  static void write(JsonWriter& json, const Manifest&) { json.value(kValue); }
};

struct FormatNumber : Constant<kFormat> {
  static Status read(Manifest&, int64_t from) {
    if (from == kFormat) return {};
    return {ZERO_ERR_UNSUPPORTED,
            text("the checkpoint has format ", from, ", this libzero reads ", kFormat)};
  }
};

/// What manifest_trailer writes and parse_manifest checks as bytes: here only where it stands.
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

using OptimizerFields =
    Object<Field<"name", &Manifest::rule>, Field<"options", &Manifest::options>,
           Field<"groups", &Manifest::groups, Lines<Object<Part<"settings", JsonForm<Settings>>>>>,
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
               Part<"end", End>> {};

}  // namespace zero
