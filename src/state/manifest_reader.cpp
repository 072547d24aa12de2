// SPDX-License-Identifier: Apache-2.0
// Reading zero.json: its own checksum, then its events into a Manifest. What no single event shows
// is in manifest_check.cpp.
#include <algorithm>

#include "base/text.h"
#include "optim/step_range.h"
#include "state/json.h"
#include "state/manifest.h"

namespace zero {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMostKeys = 1000;

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
  kRuleSlots,
  kRuleSlot,
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
  kBuffers,
  kBuffer,
  kBufferName,
  kBufferDtype,
  kBufferShape,
  kBufferDimension,
  kBufferFile,
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
    {kRuleSlots, kOptimizer, "slots", JsonField::array, false},
    {kRuleSlot, kRuleSlots, kAnyKey, JsonField::string},
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
    {kBuffers, kRoot, "buffers", JsonField::array, false},
    {kBuffer, kBuffers, kAnyKey, JsonField::object},
    {kBufferName, kBuffer, "name", JsonField::string},
    {kBufferDtype, kBuffer, "dtype", JsonField::string},
    {kBufferShape, kBuffer, "shape", JsonField::array},
    {kBufferDimension, kBufferShape, kAnyKey, JsonField::integer},
    {kBufferFile, kBuffer, "file", JsonField::integer},
    {kEnd, kRoot, "end", JsonField::object},
    {kEndBytes, kEnd, "bytes", JsonField::integer},
    {kEndHash, kEnd, "xxh3", JsonField::string},
};
static_assert(kBufferFile < 64);  // as JsonField::id wants it

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
      case kBuffer:
        manifest_.buffers.emplace_back();
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
        return steps(value, manifest_.step);
      case kSkipped:
        return steps(value, manifest_.skipped);
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
        return steps(value, param().step);
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
      case kBufferDimension:
        buffer().shape.push_back(value);
        break;
      case kBufferFile:
        return index(value, buffer().file);
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
      case kRuleSlot:
        manifest_.slots.emplace_back(value);
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
      case kBufferName:
        buffer().name = value;
        break;
      case kBufferDtype:
        buffer().dtype = value;
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
  ManifestBuffer& buffer() { return manifest_.buffers.back(); }

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
  static Status steps(int64_t value, int64_t& to) {
    if (value > kMostSteps) return invalid(text("is ", value, ", must be at most 2^53"));
    to = value;
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
  ZERO_TRY(parse_json(bytes, {kFields, kMaxDepth, true, kMostKeys}, reader));
  ZERO_TRY(check_manifest(manifest));
  return manifest;
}

}  // namespace zero
