// SPDX-License-Identifier: Apache-2.0
// Compares what files have with what the result holds, so that nothing is dropped or made up
// silently. The words are those of bindings/python/libzero/torch/_account.py.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace zero::tool {

using Patterns = std::vector<std::string>;

/// Returns true if a pattern is the name, or what the name is in: "ema" also matches "ema.w".
bool matches(const std::string& name, const Patterns& patterns);

/// Returns the first ten words, and how many more there are.
std::string listed(std::span<const std::string> words);

class Account {
 public:
  /// `ignore` has patterns of names that may be left over.
  explicit Account(Patterns ignore) : ignore_(std::move(ignore)) {}

  void left_over(const std::string& name) {
    (matches(name, ignore_) ? ignored_ : left_over_).push_back(name);
  }
  /// For names that no import takes, whether they are ignored or not.
  void set_aside(const std::string& name) { ignored_.push_back(name); }
  void missing(const std::string& name) { missing_.push_back(name); }
  /// `how` is a text such as "'w' has shape [3], not [4]".
  void differs(std::string how) { others_.push_back(std::move(how)); }

  /// Fails with ZERO_ERR_CKPT_INVALID and all that differs. Logs what is ignored or set aside.
  Status status() const;

 private:
  const Patterns ignore_;
  std::vector<std::string> left_over_, missing_, others_, ignored_;
};

}  // namespace zero::tool
