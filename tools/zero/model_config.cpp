// SPDX-License-Identifier: Apache-2.0
#include "model_config.h"

#include <algorithm>
#include <utility>

#include "architectures.h"
#include "base/refusals.h"
#include "base/text.h"
#include "config_keys.h"
#include "state/json.h"

namespace zero::tool {
namespace {

std::string listed_types() {
  std::string out;
  for (const Architecture& one : architectures()) out += text(out.empty() ? "" : ", ", one.type);
  return out;
}

/// Returns the dtype in which the model is stored, which is "F32" unless the config names another.
std::string dtype_of(ConfigKeys& keys) {
  const char* const key = keys.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = keys.word(key, "float32");
  for (const auto& [torch, code] : {std::pair{"float32", "F32"}, std::pair{"bfloat16", "BF16"},
                                    std::pair{"float16", "F16"}, std::pair{"float64", "F64"}})
    if (name == torch) return code;
  keys.refuse(key, "not float32, bfloat16, float16 or float64");
  return "F32";
}

}  // namespace

Result<std::vector<ModelTensor>> parse_config(const std::string& json) {
  const Json config = Json::parse(json, nullptr, false);
  if (!config.is_object()) return invalid("it is not a JSON object, as a config.json is");
  ConfigKeys keys(config);
  const std::string type = keys.word("model_type", "");
  const auto known = architectures();
  const auto found =
      std::ranges::find_if(known, [&](const Architecture& one) { return type == one.type; });
  if (found == known.end()) {
    keys.refuse("model_type",
                text("but only ", listed_types(), " are known here: list the shapes instead"));
    return keys.status();
  }
  if (keys.has("quantization_config"))
    keys.refuse("quantization_config", "and that is not trained");
  const std::string name = keys.first_word("architectures", found->classes[0]);
  if (!std::ranges::count(found->classes, name)) {
    std::string classes;
    for (const std::string& one : found->classes) classes += ' ' + one;
    keys.refuse("architectures", "of which only these are known here:" + classes);
  }
  ModelShapes shapes(dtype_of(keys));
  ZERO_TRY(keys.status());  // before anything is derived from it
  found->add(keys, shapes, name);
  ZERO_TRY(keys.status());
  return std::move(shapes).take();
}

}  // namespace zero::tool
