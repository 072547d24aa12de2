// SPDX-License-Identifier: Apache-2.0
// What must be the same on all ranks, said line by line: as text, for errors, and as numbers, which
// every call compares, because texts of numbers take long to write. Ranks have as many lines of
// each kind, so that a difference shows two that belong together.
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

/// Writes the lines. Doubles are shown to the bit.
class AgreedLines {
 public:
  std::string text;

  template <class... Parts>
  void operator()(const Parts&... parts) {
    (add(parts), ...);
    text += "\n";
  }
  /// Takes lines that are text anyhow.
  void lines(std::string_view all) { text += all; }
  /// Takes those that `make` returns, of which there is a hash.
  void lines(uint64_t, const auto& make) { text += make(); }

 private:
  void add(double number) { text += exact(number); }
  template <class Part>
  void add(const Part& part) {
    append_text(text, part);
  }
};

/// Keeps the numbers of each line, and how many they are. Literals say nothing: lines of one kind
/// have the same.
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
