// SPDX-License-Identifier: Apache-2.0
// Builds messages for errors and logs from parts.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace zero {

inline void append_text(std::string& out, std::string_view part) { out += part; }
inline void append_text(std::string& out, char part) { out += part; }
template <std::integral Number>
void append_text(std::string& out, Number part) {
  out += std::to_string(part);
}
void append_text(std::string& out, double part);  // the shortest text that reads back the same

/// Concatenates the parts: text("rank ", 2, " registered ", 1000, " elements").
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

/// Returns the exact value of a double as "0x1.8p+1", "inf", "-inf" or "nan", in every locale.
std::string hex_double(double value);
/// Returns a text like "0x1.8p+1 (3)", which shows a difference of one bit.
std::string exact(double value);

/// Returns the system's text for an errno: "No space left on device (ENOSPC)".
std::string errno_text(int error);

// ---- UTF-8. Names are written to JSON and sent to other ranks, so they must be valid UTF-8.

/// Returns true if `text` is well-formed: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// Returns `text` with a question mark in place of each byte that is not part of well-formed UTF-8.
/// For texts from other processes.
std::string as_utf8(std::string_view text);

/// Returns true for all bytes of a character except the first.
constexpr bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// Returns the longest prefix of `text` with at most `bytes` bytes that ends between characters.
std::string_view utf8_prefix(std::string_view text, size_t bytes);

/// Returns the number of bytes of the control character at the start of `text`, or 0 if there is
/// none. Control characters could control a terminal.
inline size_t control_character_bytes(std::string_view text) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  if (text.empty()) return 0;
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  return byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0 ? 2 : 0;  // U+0080 to U+009F
}

/// Removes `prefix` from the start of `words`. Returns false if it is not there.
inline bool take_prefix(std::string_view& words, std::string_view prefix) {
  if (!words.starts_with(prefix)) return false;
  words.remove_prefix(prefix.size());
  return true;
}

}  // namespace zero
