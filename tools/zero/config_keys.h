// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json. The first that is missing or wrong is kept, so that one look at status()
// is enough for all of them.
#pragma once

#include <string>

#include "base/status.h"
#include "output.h"

namespace zero::tool {

class ConfigKeys {
 public:
  explicit ConfigKeys(const Json& config) : config_(config) {}

  /// Returns a positive number, or 1 if there is none, which is a mistake.
  int64_t number(const char* key);
  /// The same of layers and such things, of which no model has more than a thousand.
  int64_t few(const char* key);
  /// These return `fallback` if the key is missing or null.
  int64_t number(const char* key, int64_t fallback);
  bool flag(const char* key, bool fallback);
  std::string word(const char* key, const char* fallback);
  /// Returns the first word of a list, or `fallback`.
  std::string first_word(const char* key, const std::string& fallback);

  bool has(const char* key) const;
  /// Adds a mistake: "'position_embedding_type' is 'relative_key', of which ...".
  void refuse(const char* key, const std::string& why);
  const Status& status() const { return status_; }

 private:
  std::string shown_value(const char* key) const;

  const Json& config_;
  Status status_;
};

}  // namespace zero::tool
