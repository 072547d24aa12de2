// SPDX-License-Identifier: Apache-2.0
// Names travel in JSON, so they must be UTF-8.
#pragma once

#include <string_view>

namespace zero {

/// True if `text` is well-formed UTF-8: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// A byte inside or at the end of a character of several.
constexpr bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// The longest part of `text` that has at most `bytes` bytes and cuts no UTF-8 character.
std::string_view utf8_prefix(std::string_view text, size_t bytes);

}  // namespace zero
