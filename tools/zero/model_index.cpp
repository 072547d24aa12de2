// SPDX-License-Identifier: Apache-2.0
#include "model_index.h"

#include "state/file.h"
#include "state/json.h"
#include "state/safetensors.h"

namespace zero::tool {
namespace {

using Places = std::map<std::string, std::string>;

struct FileName {
  static Status read(std::string& to, std::string_view from) {
    if (!is_file_name(from)) return invalid(shown(from), " is not a file name");
    return to = from, Status();
  }
};

struct WeightMap {
  template <class>
  static constexpr JsonType type() {
    return {.kind = JsonType::object,
            .item = &kJsonType<std::string, FileName>,
            .add = [](void* to, std::string_view tensor, size_t) -> Result<void*> {
              return &(*static_cast<Places*>(to))[std::string(tensor)];
            }};
  }
};

struct Index {
  Places files;
};
using IndexFields = Object<Field<"weight_map", &Index::files, WeightMap>>;

}  // namespace

Result<Places> parse_model_index(std::string_view json) {
  constexpr JsonLimits kLimits = {
      .max_depth = 4, .ignore_unknown_keys = true, .most_keys = kMostTensors, .any_numbers = true};
  Index index;
  ZERO_TRY(parse_json(json, kLimits, kJsonType<Index, IndexFields>, &index));
  return std::move(index.files);
}

}  // namespace zero::tool
