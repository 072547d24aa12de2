// SPDX-License-Identifier: Apache-2.0
// Lists values that must be the same on all ranks, line by line. Every call compares them as
// numbers, because formatting numbers is slow. Only errors show them as text. All ranks list the
// same lines in the same order, so that lines that differ correspond to each other.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/text.h"

namespace zero {

/// Writes the lines as text. Doubles are written exactly.
class AgreedLines {
 public:
  std::string text;

  template <class... Parts>
  void operator()(const Parts&... parts) {
    (add(parts), ...);
    text += "\n";
  }
  /// Adds lines that exist as text.
  void lines(std::string_view all) { text += all; }
  /// Adds the lines that `make` returns. The first parameter is their hash.
  void lines(uint64_t, const auto& make) { text += make(); }

 private:
  void add(double number) { text += exact(number); }
  template <class Part>
  void add(const Part& part) {
    append_text(text, part);
  }
};

/// Stores the numbers in each line and their count. Skips string literals, which are the same on
/// all ranks.
class AgreedNumbers {
 public:
  explicit AgreedNumbers(std::vector<uint64_t>& room) : all_(room) { all_.clear(); }

  template <class... Parts>
  void operator()(const Parts&... parts) {
    const size_t before = all_.size();
    (add(parts), ...);
    all_.push_back(all_.size() - before);
  }
  void lines(std::string_view all) { add(all); }
  void lines(uint64_t hash, const auto&) { add(hash); }

 private:
  template <size_t bytes>
  void add(const char (&)[bytes]) {}
  void add(std::string_view words) { add(words.empty() ? uint64_t{0} : hash64(bytes_of(words))); }
  void add(double number) { all_.push_back(std::bit_cast<uint64_t>(number)); }
  template <std::integral Number>
  void add(Number number) {
    all_.push_back(static_cast<uint64_t>(number));
  }

  std::vector<uint64_t>& all_;
};

}  // namespace zero
