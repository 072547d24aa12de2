// SPDX-License-Identifier: Apache-2.0
#include "config_keys.h"

#include "base/refusals.h"
#include "base/text.h"
#include "state/json.h"

namespace zero::tool {
namespace {

constexpr int64_t kMost = 1'000'000'000, kFew = 1000;

}  // namespace

bool ConfigKeys::has(const char* key) const {
  return config_.contains(key) && !config_.at(key).is_null();
}

std::string ConfigKeys::shown_value(const char* key) const {
  return config_.at(key).dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80);
}

void ConfigKeys::refuse(const char* key, const std::string& why) {
  if (!status_.ok()) return;
  status_ = has(key) ? invalid(shown(key), " is ", shown_value(key), ", ", why)
                     : invalid("it has no key ", shown(key), ", ", why);
}

int64_t ConfigKeys::number(const char* key) {
  if (!has(key)) refuse(key, "from which the shapes follow");
  return number(key, 1);
}

int64_t ConfigKeys::few(const char* key) {
  const int64_t value = number(key);
  if (value <= kFew) return value;
  refuse(key, text("but at most ", kFew, " are taken"));
  return 1;
}

int64_t ConfigKeys::number(const char* key, int64_t fallback) {
  if (!has(key)) return fallback;
  const Json& value = config_.at(key);
  if (value.is_number_integer() && value >= 1 && value <= kMost) return value.get<int64_t>();
  refuse(key, text("not a whole number from 1 to ", kMost));
  return 1;
}

bool ConfigKeys::flag(const char* key, bool fallback) {
  if (!has(key)) return fallback;
  if (config_.at(key).is_boolean()) return config_.at(key).get<bool>();
  refuse(key, "not true or false");
  return fallback;
}

std::string ConfigKeys::word(const char* key, const char* fallback) {
  if (!has(key)) return fallback;
  if (config_.at(key).is_string()) return config_.at(key).get<std::string>();
  refuse(key, "not a word");
  return fallback;
}

std::string ConfigKeys::first_word(const char* key, const std::string& fallback) {
  if (!has(key)) return fallback;
  const Json& value = config_.at(key);
  if (value.is_array() && !value.empty() && value[0].is_string())
    return value[0].get<std::string>();
  refuse(key, "not a list of words");
  return fallback;
}

}  // namespace zero::tool
