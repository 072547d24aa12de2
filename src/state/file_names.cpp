// SPDX-License-Identifier: Apache-2.0
#include "state/file_names.h"

#include <cstdio>

#include "base/text.h"

namespace zero {
namespace {

constexpr std::string_view kTensorEnding = ".safetensors";
/// Differs from kTensorEnding, so that readers of model files and older versions ignore such files.
constexpr std::string_view kExtraEnding = ".st";

/// Removes a number of at least five digits from the front, in the form that "%05d" writes.
bool take_number(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') digits++;
  if (digits < 5 || digits > 10 || (digits > 5 && text[0] == '0')) return false;
  text.remove_prefix(digits);
  return true;
}

}  // namespace

std::string shard_name(std::string_view kind, int32_t rank, int32_t world) {
  char numbers[32];
  std::snprintf(numbers, sizeof numbers, "-%05d-of-%05d", rank + 1, world);
  return text(kind, numbers, kind == kExtra ? kExtraEnding : kTensorEnding);
}

std::vector<std::string> file_names(int32_t world) {
  std::vector<std::string> names;
  const auto add_shards = [&](const char* kind) {
    for (int32_t rank = 0; rank < world; rank++) names.push_back(shard_name(kind, rank, world));
  };
  add_shards("model");
  add_shards("optim");
  names.insert(names.end(), {kIndexName, kManifestName});
  add_shards(kExtra);
  return names;
}

bool is_checkpoint_file(std::string_view name) {
  if (name == kManifestName || name == kIndexName) return true;
  const bool extra = take_prefix(name, "extra-");
  if (!extra && !take_prefix(name, "model-") && !take_prefix(name, "optim-")) return false;
  return take_number(name) && take_prefix(name, "-of-") && take_number(name) &&
         name == (extra ? kExtraEnding : kTensorEnding);
}

bool is_tensor_file(std::string_view name) {
  return name.size() > kTensorEnding.size() && name.ends_with(kTensorEnding);
}

}  // namespace zero
