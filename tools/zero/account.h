// SPDX-License-Identifier: Apache-2.0
// What files have, beside what the result holds: nothing is dropped or made up without a word. The
// words are those of bindings/python/libzero/torch/_account.py.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace zero::tool {

using Patterns = std::vector<std::string>;

/// True if a pattern is the name, or one of what the name is in: "ema" is that of "ema.w", too.
bool matches(const std::string& name, const Patterns& patterns);

/// Returns the first ten words, and how many more there are.
std::string listed(std::span<const std::string> words);

class Account {
 public:
  /// `ignore`: of names that may be left over.
  explicit Account(Patterns ignore) : ignore_(std::move(ignore)) {}

  void left_over(const std::string& name) {
    (matches(name, ignore_) ? ignored_ : left_over_).push_back(name);
  }
  /// Of what no import takes, whether it is ignored or not.
  void set_aside(const std::string& name) { ignored_.push_back(name); }
  void missing(const std::string& name) { missing_.push_back(name); }
  /// `how`: "'w' has shape [3], not [4]".
  void differs(std::string how) { others_.push_back(std::move(how)); }

  /// Fails with ZERO_ERR_CKPT_INVALID and all that differs; logs what is ignored or set aside.
  Status status() const;

 private:
  const Patterns ignore_;
  std::vector<std::string> left_over_, missing_, others_, ignored_;
};

}  // namespace zero::tool
