// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <cstdint>

namespace zero {

bool is_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int length = lead < 0x80       ? 1
                       : lead >> 5 == 6  ? 2
                       : lead >> 4 == 14 ? 3
                       : lead >> 3 == 30 ? 4
                                         : 0;
    if (length == 0 || text.size() - i < static_cast<size_t>(length)) return false;
    uint32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
    for (int k = 1; k < length; k++) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<size_t>(k)]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3Fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[length] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
      return false;
    i += static_cast<size_t>(length);
  }
  return true;
}

std::string_view utf8_prefix(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && continues_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

}  // namespace zero
