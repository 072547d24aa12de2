// SPDX-License-Identifier: Apache-2.0
// Names travel in JSON, and messages between ranks, so they must be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// True if `text` is well-formed UTF-8: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// `text` with a question mark for each byte that is no part of well-formed UTF-8: what another
/// process has said.
std::string as_utf8(std::string_view text);

/// True for all bytes of a character but its first.
constexpr bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// The longest part of `text` that has at most `bytes` bytes and cuts no character.
std::string_view utf8_prefix(std::string_view text, size_t bytes);

}  // namespace zero
