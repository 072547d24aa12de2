// SPDX-License-Identifier: Apache-2.0
#include "model_size.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace zero::tool {
namespace {

constexpr double kMost = 1e15;

/// Returns the factor that the letter after a number stands for, or 0.
double factor_of(std::string_view letter) {
  if (letter.empty()) return 1;
  if (letter == "k" || letter == "K") return 1e3;
  if (letter == "m" || letter == "M") return 1e6;
  if (letter == "b" || letter == "B") return 1e9;
  if (letter == "t" || letter == "T") return 1e12;
  return 0;
}

}  // namespace

std::optional<int64_t> parameters_of(std::string_view word) {
  // strtod also accepts spaces, signs, words and hexadecimal digits.
  if (word.empty() || word.find_first_of("0123456789.") != 0) return {};
  if (word.find_first_of("xX") != word.npos) return {};
  const std::string all(word);
  char* end = nullptr;
  const double number = std::strtod(all.c_str(), &end);
  const double count = std::round(number * factor_of(end));
  if (!(count >= 1 && count <= kMost)) return {};
  return static_cast<int64_t>(count);
}

}  // namespace zero::tool
