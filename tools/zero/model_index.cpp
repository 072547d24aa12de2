// SPDX-License-Identifier: Apache-2.0
#include "model_index.h"

#include "state/file.h"
#include "state/json.h"
#include "state/safetensors.h"

namespace zero::tool {
namespace {

using Names = std::set<std::string>;

struct FileName {
  static Status read(Names& to, std::string_view from) {
    if (!is_file_name(from)) return invalid(shown(from), " is no name of a file");
    to.emplace(from);
    return {};
  }
};

struct WeightMap {
  template <class>
  static constexpr JsonType type() {
    return {.kind = JsonType::object,
            .item = &kJsonType<Names, FileName>,
            .add = [](void* to, std::string_view, size_t) -> Result<void*> { return to; }};
  }
};

struct Index {
  Names files;
};
using IndexFields = Object<Field<"weight_map", &Index::files, WeightMap>>;

}  // namespace

Result<std::set<std::string>> parse_model_index(std::string_view json) {
  constexpr JsonLimits kLimits = {
      .max_depth = 4, .ignore_unknown_keys = true, .most_keys = kMostTensors, .any_numbers = true};
  Index index;
  ZERO_TRY(parse_json(json, kLimits, kJsonType<Index, IndexFields>, &index));
  return std::move(index.files);
}

}  // namespace zero::tool
