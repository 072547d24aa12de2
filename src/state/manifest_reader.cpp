// SPDX-License-Identifier: Apache-2.0
// Reading zero.json: its own checksum, then its events into a Manifest, then what no single event
// shows.
#include <algorithm>
#include <unordered_set>

#include "base/dtype.h"
#include "base/text.h"
#include "base/utf8.h"
#include "state/json.h"
#include "state/manifest.h"
#include "state/safetensors.h"

namespace zero {
namespace {

constexpr size_t kMostDimensions = 16;
constexpr size_t kLongestName = 4096;
constexpr int kMaxDepth = 16;

Status invalid(std::string what) { return {ZERO_ERR_CKPT_INVALID, std::move(what)}; }

enum Place : int {
  kRoot,
  kZeroFormat,
  kSaveId,
  kStep,
  kSkipped,
  kWorld,
  kCreatedBy,
  kBlock,
  kEnd,
  kEndBytes,
  kEndHash,
  kOptimizer,
  kRule,
  kOptions,
  kOption,
  kGroups,
  kGroup,
  kSettings,
  kSetting,
  kFiles,
  kFile,
  kFileName,
  kFileBytes,
  kBlocks,
  kChecksum,
  kParams,
  kParam,
  kParamName,
  kDtype,
  kShape,
  kDimension,
  kParamGroup,
  kParamStep,
  kMuProduct,
  kParamFile,
  kSlots,
  kSlot,
  kSlotName,
  kSlices,
  kSlice,
  kSliceFile,
  kSliceKey,
  kSliceStart,
  kSliceCount,
};

constexpr JsonField kFields[] = {
    {kZeroFormat, kRoot, "zero_format", JsonField::integer},
    {kSaveId, kRoot, "save_id", JsonField::string},
    {kStep, kRoot, "step", JsonField::integer},
    {kSkipped, kRoot, "skipped", JsonField::integer},
    {kWorld, kRoot, "world", JsonField::integer},
    {kCreatedBy, kRoot, "created_by", JsonField::string},
    {kBlock, kRoot, "block_bytes", JsonField::integer},
    {kOptimizer, kRoot, "optimizer", JsonField::object},
    {kRule, kOptimizer, "name", JsonField::string},
    {kOptions, kOptimizer, "options", JsonField::object},
    {kOption, kOptions, kAnyKey, JsonField::string},
    {kGroups, kOptimizer, "groups", JsonField::array},
    {kGroup, kGroups, kAnyKey, JsonField::object},
    {kSettings, kGroup, "settings", JsonField::object},
    {kSetting, kSettings, kAnyKey, JsonField::string},
    {kFiles, kRoot, "files", JsonField::array},
    {kFile, kFiles, kAnyKey, JsonField::object},
    {kFileName, kFile, "name", JsonField::string},
    {kFileBytes, kFile, "bytes", JsonField::integer},
    {kBlocks, kFile, "blocks", JsonField::array},
    {kChecksum, kBlocks, kAnyKey, JsonField::string},
    {kParams, kRoot, "params", JsonField::array},
    {kParam, kParams, kAnyKey, JsonField::object},
    {kParamName, kParam, "name", JsonField::string},
    {kDtype, kParam, "dtype", JsonField::string},
    {kShape, kParam, "shape", JsonField::array},
    {kDimension, kShape, kAnyKey, JsonField::integer},
    {kParamGroup, kParam, "group", JsonField::integer},
    {kParamStep, kParam, "step", JsonField::integer},
    {kMuProduct, kParam, "mu_product", JsonField::string, false},
    {kParamFile, kParam, "file", JsonField::integer},
    {kSlots, kParam, "slots", JsonField::array},
    {kSlot, kSlots, kAnyKey, JsonField::object},
    {kSlotName, kSlot, "name", JsonField::string},
    {kSlices, kSlot, "slices", JsonField::array},
    {kSlice, kSlices, kAnyKey, JsonField::object},
    {kSliceFile, kSlice, "file", JsonField::integer},
    {kSliceKey, kSlice, "key", JsonField::string},
    {kSliceStart, kSlice, "start", JsonField::integer},
    {kSliceCount, kSlice, "count", JsonField::integer},
    {kEnd, kRoot, "end", JsonField::object},
    {kEndBytes, kEnd, "bytes", JsonField::integer},
    {kEndHash, kEnd, "xxh3", JsonField::string},
};
static_assert(kSliceCount < 64);  // as JsonField::id wants it

class ManifestReader final : public JsonHandler {
 public:
  explicit ManifestReader(Manifest& manifest) : manifest_(manifest) {}

  Status open(int id, std::string_view) override {
    switch (id) {
      case kGroup:
        manifest_.groups.emplace_back();
        break;
      case kFile:
        manifest_.files.emplace_back();
        break;
      case kParam:
        manifest_.params.emplace_back();
        break;
      case kSlot:
        param().slots.emplace_back();
        break;
      case kSlice:
        slot().slices.emplace_back();
        break;
      default:
        break;
    }
    return {};
  }

  Status integer(int id, std::string_view, int64_t value) override {
    switch (id) {
      case kZeroFormat:
        return check_format(value);
      case kStep:
        manifest_.step = value;
        break;
      case kSkipped:
        manifest_.skipped = value;
        break;
      case kWorld:
        return index(value, manifest_.world);
      case kBlock:
        return check_block(value);
      case kFileBytes:
        file().bytes = static_cast<uint64_t>(value);
        break;
      case kDimension:
        param().shape.push_back(value);
        break;
      case kParamGroup:
        return index(value, param().group);
      case kParamStep:
        param().step = value;
        break;
      case kParamFile:
        return index(value, param().file);
      case kSliceFile:
        return index(value, slice().file);
      case kSliceStart:
        slice().start = value;
        break;
      case kSliceCount:
        slice().count = value;
        break;
      default:
        break;  // of the end, which is checked as bytes
    }
    return {};
  }

  Status string(int id, std::string_view key, std::string_view value) override {
    switch (id) {
      case kSaveId:
        return parse_hex(value, manifest_.save_id) ? Status()
                                                   : invalid("is not 32 hexadecimal digits");
      case kCreatedBy:
        manifest_.created_by = value;
        break;
      case kRule:
        manifest_.rule = value;
        break;
      case kOption:
        return setting(manifest_.options, key, value);
      case kSetting:
        return setting(manifest_.groups.back(), key, value);
      case kFileName:
        file().name = value;
        break;
      case kChecksum:
        return checksum(value);
      case kParamName:
        param().name = value;
        break;
      case kDtype:
        param().dtype = value;
        break;
      case kMuProduct:
        return mu_product(value);
      case kSlotName:
        slot().name = value;
        break;
      case kSliceKey:
        slice().key = value;
        break;
      default:
        break;
    }
    return {};
  }

 private:
  FileRecord& file() { return manifest_.files.back(); }
  ManifestParam& param() { return manifest_.params.back(); }
  ManifestSlot& slot() { return param().slots.back(); }
  ManifestSlice& slice() { return slot().slices.back(); }

  static Status check_format(int64_t value) {
    if (value == kFormat) return {};
    return {ZERO_ERR_UNSUPPORTED,
            text("the checkpoint has format ", value, ", this libzero reads ", kFormat)};
  }
  static Status check_block(int64_t value) {
    if (value == static_cast<int64_t>(kBlockBytes)) return {};
    return invalid(text("is ", value, ", must be ", kBlockBytes));
  }
  static Status index(int64_t value, int32_t& to) {
    if (value > INT32_MAX) return invalid(text("is ", value, ", must be below 2^31"));
    to = static_cast<int32_t>(value);
    return {};
  }
  static Status setting(Settings& settings, std::string_view key, std::string_view value) {
    double number = 0;
    if (!parse_hex_double(value, number)) return invalid("is not a hexadecimal number");
    settings.emplace_back(key, number);
    return {};
  }
  Status mu_product(std::string_view value) {
    double& product = param().mu_product;
    if (!parse_hex_double(value, product)) return invalid("is not a hexadecimal number");
    return product >= 0 && product <= 1 ? Status() : invalid("is not in [0, 1]");
  }
  Status checksum(std::string_view value) {
    uint64_t block = 0;
    if (!parse_hex(value, block)) return invalid("is not 16 hexadecimal digits");
    file().blocks.push_back(block);
    return {};
  }

  Manifest& manifest_;
};

// ---- What no single event shows.

Status check_files(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const FileRecord& file : manifest.files) {
    if (!is_file_name(file.name) || file.name == kManifestName) {
      return invalid(
          text("file ", shown(file.name), ": not a name that a file of a checkpoint can have"));
    }
    if (!names.insert(file.name).second)
      return invalid(text("file ", shown(file.name), " is listed twice"));
    if (file.bytes == 0) return invalid(text("file ", shown(file.name), " has no bytes"));
    if (file.blocks.size() != block_count(file.bytes)) {
      return invalid(text("file ", shown(file.name), ": ", file.blocks.size(), " checksums for ",
                          file.bytes, " bytes, which are ", block_count(file.bytes), " blocks"));
    }
  }
  return {};
}

bool holds_tensors(const Manifest& manifest, int32_t file) {
  const auto index = static_cast<size_t>(file);
  return index < manifest.files.size() && is_tensor_file(manifest.files[index].name);
}

/// The slices cover the parameter exactly once.
Status check_slices(const Manifest& manifest, const ManifestParam& param, ManifestSlot& slot) {
  const auto bad = [&](const auto&... parts) {
    return invalid(text("parameter ", shown(param.name), ", ", shown(slot.name), ": ", parts...));
  };
  std::sort(slot.slices.begin(), slot.slices.end(),
            [](const ManifestSlice& a, const ManifestSlice& b) { return a.start < b.start; });
  int64_t end = 0;
  for (const ManifestSlice& slice : slot.slices) {
    if (!holds_tensors(manifest, slice.file))
      return bad("file ", slice.file, " is none that holds tensors");
    if (slice.key.empty()) return bad("a slice without a key");
    if (slice.count == 0 && (param.count != 0 || slot.slices.size() != 1))
      return bad("an empty slice");
    if (slice.start != end) {
      return bad(slice.start < end ? "two slices hold element " : "no slice holds element ",
                 std::min(slice.start, end));
    }
    if (slice.count > param.count - end) {
      return bad("a slice ends behind element ", param.count, ", where the parameter ends");
    }
    end += slice.count;
  }
  if (slot.slices.empty()) return bad("no slices");
  if (end != param.count) return bad("no slice holds element ", end);
  return {};
}

Status check_param(const Manifest& manifest, ManifestParam& param) {
  const auto bad = [&](const auto&... parts) {
    return invalid(text("parameter ", shown(param.name), ": ", parts...));
  };
  if (param.name.empty() || param.name.size() > kLongestName)
    return bad("a name of ", param.name.size(), " bytes");
  const DType dtype = dtype_of_code(param.dtype);
  if (dtype == DType::none)
    return bad("dtype ", shown(param.dtype), ", must be F32, F64, BF16, F16, I32 or I64");
  if (!is_floating(dtype) && (!param.slots.empty() || param.step != 0))
    return bad("dtype ", param.dtype, " cannot be trained, but it has state");
  if (param.shape.size() > kMostDimensions)
    return bad("more than ", kMostDimensions, " dimensions");
  const auto elements = shape_elements(param.shape);
  if (!elements || *elements > INT64_MAX / 8) return bad("the shape's product overflows");
  param.count = *elements;
  if (static_cast<size_t>(param.group) >= manifest.groups.size()) {
    return bad("group ", param.group, " of ", manifest.groups.size());
  }
  if (!holds_tensors(manifest, param.file))
    return bad("file ", param.file, " is none that holds tensors");
  std::unordered_set<std::string_view> names;
  for (ManifestSlot& slot : param.slots) {
    if (slot.name.empty() || !names.insert(slot.name).second) {
      return bad("slot ", shown(slot.name), " is nameless or comes twice");
    }
    ZERO_TRY(check_slices(manifest, param, slot));
  }
  return {};
}

/// No tensor of a file is used twice.
Status check_keys(const Manifest& manifest) {
  std::vector<std::pair<int32_t, std::string_view>> keys;
  for (const ManifestParam& param : manifest.params) {
    keys.emplace_back(param.file, param.name);
    for (const ManifestSlot& slot : param.slots) {
      for (const ManifestSlice& slice : slot.slices) keys.emplace_back(slice.file, slice.key);
    }
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return {};
  return invalid(
      text("tensor ", shown(twice->second), " of file ", twice->first, " is used twice"));
}

Status check(Manifest& manifest) {
  if (manifest.world < 1) return invalid("the world is 0");
  ZERO_TRY(check_files(manifest));
  std::unordered_set<std::string_view> names;
  for (ManifestParam& param : manifest.params) {
    ZERO_TRY(check_param(manifest, param));
    if (!names.insert(param.name).second) {
      return invalid(text("parameter ", shown(param.name), " is listed twice"));
    }
  }
  return check_keys(manifest);
}

/// The trailer is found where write_manifest puts it, and is byte for byte what its body asks for.
Status check_trailer(std::string_view bytes) {
  constexpr size_t kLongestTrailer = 80;
  const size_t from = bytes.size() - std::min(bytes.size(), kLongestTrailer);
  const size_t at = bytes.substr(from).rfind("\"end\":{");
  if (at == bytes.npos) return invalid("it does not end as a complete manifest does");
  const std::string_view body = bytes.substr(0, from + at);
  if (bytes.substr(body.size()) == manifest_trailer(body)) return {};
  return invalid(text("its first ", body.size(),
                      " bytes do not have the length and checksum that its end says"));
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view bytes) {
  if (bytes.size() > kLongestManifest) {
    return invalid(text("it has ", bytes.size(), " bytes, at most ", kLongestManifest));
  }
  ZERO_TRY(check_trailer(bytes));
  Manifest manifest;
  ManifestReader reader(manifest);
  ZERO_TRY(parse_json(bytes, {kFields, kMaxDepth, true}, reader));
  ZERO_TRY(check(manifest));
  return manifest;
}

}  // namespace zero
