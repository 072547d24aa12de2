// SPDX-License-Identifier: Apache-2.0
// Sentences for errors and logs, put together from their parts.
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

/// Puts the parts together: text("rank ", 2, " registered ", 1000, " elements").
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

/// Returns the exact bits of a double as "0x1.8p+1", "inf", "-inf" or "nan"; the same in every
/// locale.
std::string hex_double(double value);
/// Returns "0x1.8p+1 (3)", in which a difference of one bit shows.
std::string exact(double value);

/// Returns the system's words for an errno: "No space left on device (ENOSPC)".
std::string errno_text(int error);

// ---- Names travel in JSON, and messages between ranks, so they must be UTF-8.

/// True if `text` is well-formed UTF-8: shortest forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

/// Returns `text` with a question mark for each byte that is not part of well-formed UTF-8. For
/// texts that another process sent.
std::string as_utf8(std::string_view text);

/// True for all bytes of a character but its first.
constexpr bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

/// Returns the longest prefix of `text` that has at most `bytes` bytes and cuts no character.
std::string_view utf8_prefix(std::string_view text, size_t bytes);

/// Returns how many bytes of a control character, which could steer a terminal, `text` begins with:
/// 0 if it begins with another one.
inline size_t control_character_bytes(std::string_view text) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  if (text.empty()) return 0;
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  return byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0 ? 2 : 0;  // U+0080 to U+009F
}

/// Takes `prefix` off the front of `words`, if it stands there.
inline bool take_prefix(std::string_view& words, std::string_view prefix) {
  if (!words.starts_with(prefix)) return false;
  words.remove_prefix(prefix.size());
  return true;
}

}  // namespace zero
