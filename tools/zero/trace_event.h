// SPDX-License-Identifier: Apache-2.0
// Reads fields of a trace event, which may be any JSON.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "output.h"

namespace zero::tool {

/// Returns the value of a key of an object, or `otherwise` if it is missing or has another type.
template <class T>
T field(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<T>() : otherwise;
  } else {
    return found->is_number() ? found->template get<T>() : otherwise;
  }
}

inline bool is(const Json& event, const char* key, std::string_view word) {
  return field<std::string>(event, key, "") == word;
}

inline const Json& arguments_of(const Json& event) {
  static const Json none = Json::object();
  const auto found = event.find("args");
  return found != event.end() && found->is_object() ? *found : none;
}

}  // namespace zero::tool
