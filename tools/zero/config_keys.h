// SPDX-License-Identifier: Apache-2.0
// Reads keys of a config.json. Keeps the first mistake, so that one look at status() is enough for
// all keys.
#pragma once

#include <string>

#include "base/status.h"
#include "output.h"

namespace zero::tool {

class ConfigKeys {
 public:
  explicit ConfigKeys(const Json& config) : config_(config) {}

  /// Returns a positive number. If there is none, notes a mistake and returns 1.
  int64_t number(const char* key);
  /// Does the same for numbers such as that of layers, of which no model has more than a thousand.
  int64_t few(const char* key);
  /// These return `fallback` if the key is missing or null.
  int64_t number(const char* key, int64_t fallback);
  bool flag(const char* key, bool fallback);
  std::string word(const char* key, const char* fallback);
  /// Returns the first word of a list, or `fallback`.
  std::string first_word(const char* key, const std::string& fallback);

  bool has(const char* key) const;
  /// Notes a mistake: "'position_embedding_type' is 'relative_key', of which ...".
  void refuse(const char* key, const std::string& why);
  const Status& status() const { return status_; }

 private:
  std::string shown_value(const char* key) const;

  const Json& config_;
  Status status_;
};

}  // namespace zero::tool
