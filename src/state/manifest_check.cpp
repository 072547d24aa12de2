// SPDX-License-Identifier: Apache-2.0
// What no single event of zero.json shows: that a manifest is consistent in itself.
#include <algorithm>
#include <unordered_set>

#include "state/file.h"
#include "state/json.h"
#include "state/manifest.h"
#include "state/safetensors.h"

namespace zero {
namespace {

constexpr size_t kLongestName = 4096;

Status check_files(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  for (const FileRecord& file : manifest.files) {
    if (!is_file_name(file.name) || file.name == kManifestName) {
      return invalid("file ", shown(file.name),
                     ": not a name that a file of a checkpoint can have");
    }
    if (!names.insert(file.name).second)
      return invalid("file ", shown(file.name), " is listed twice");
    if (file.bytes == 0) return invalid("file ", shown(file.name), " has no bytes");
    if (file.blocks.size() != block_count(file.bytes)) {
      return invalid("file ", shown(file.name), ": ", file.blocks.size(), " checksums for ",
                     file.bytes, " bytes, which are ", block_count(file.bytes), " blocks");
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
    return invalid("parameter ", shown(param.name), ", ", shown(slot.name), ": ", parts...);
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

/// What a parameter and a buffer must be alike. Sets the number of elements.
template <class Tensor>
Status check_tensor(const Manifest& manifest, const char* kind, Tensor& tensor) {
  const auto bad = [&](const auto&... parts) {
    return invalid(kind, " ", shown(tensor.name), ": ", parts...);
  };
  if (tensor.name.empty() || tensor.name.size() > kLongestName)
    return bad("a name of ", tensor.name.size(), " bytes");
  if (dtype_of_code(tensor.dtype) == DType::none)
    return bad("dtype ", shown(tensor.dtype), ", must be F32, F64, BF16, F16, I32 or I64");
  const auto elements = shape_elements(tensor.shape);
  if (!elements || *elements > INT64_MAX / 8) return bad("the shape's product overflows");
  tensor.count = *elements;
  if (!holds_tensors(manifest, tensor.file))
    return bad("file ", tensor.file, " is none that holds tensors");
  return {};
}

Status check_param(const Manifest& manifest, ManifestParam& param) {
  ZERO_TRY(check_tensor(manifest, "parameter", param));
  const auto bad = [&](const auto&... parts) {
    return invalid("parameter ", shown(param.name), ": ", parts...);
  };
  if (!is_floating(dtype_of_code(param.dtype)) && (!param.slots.empty() || param.step != 0))
    return bad("dtype ", param.dtype, " cannot be trained, but it has state");
  if (static_cast<size_t>(param.group) >= manifest.groups.size()) {
    return bad("group ", param.group, " of ", manifest.groups.size());
  }
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
  for_each_tensor(
      manifest, [&](const ManifestTensor& tensor) { keys.emplace_back(tensor.file, tensor.key); });
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return {};
  return invalid("tensor ", shown(twice->second), " of file ", twice->first, " is used twice");
}

}  // namespace

Status check_manifest(Manifest& manifest) {
  if (manifest.world < 1) return invalid("the world is 0");
  ZERO_TRY(check_files(manifest));
  std::unordered_set<std::string_view> names;
  for (ManifestParam& param : manifest.params) {
    ZERO_TRY(check_param(manifest, param));
    if (!names.insert(param.name).second) {
      return invalid("parameter ", shown(param.name), " is listed twice");
    }
  }
  for (ManifestBuffer& buffer : manifest.buffers) {
    ZERO_TRY(check_tensor(manifest, "buffer", buffer));
    if (!names.insert(buffer.name).second) {
      return invalid("buffer ", shown(buffer.name), " is listed twice, or is a parameter, too");
    }
  }
  return check_keys(manifest);
}

}  // namespace zero
