// SPDX-License-Identifier: Apache-2.0
// Names of errno values. strerrorname_np is newer than the oldest supported C library.
#include "base/text.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace zero {
namespace {

struct ErrnoName {
  int error;
  const char* name;
};

#define ZERO_NAME(error) \
  { error, #error }
constexpr ErrnoName kErrnoNames[] = {
    ZERO_NAME(E2BIG),         ZERO_NAME(EACCES),       ZERO_NAME(EADDRINUSE),
    ZERO_NAME(EADDRNOTAVAIL), ZERO_NAME(EAFNOSUPPORT), ZERO_NAME(EAGAIN),
    ZERO_NAME(EALREADY),      ZERO_NAME(EBADF),        ZERO_NAME(EBUSY),
    ZERO_NAME(ECONNABORTED),  ZERO_NAME(ECONNREFUSED), ZERO_NAME(ECONNRESET),
    ZERO_NAME(EDEADLK),       ZERO_NAME(EDQUOT),       ZERO_NAME(EEXIST),
    ZERO_NAME(EFAULT),        ZERO_NAME(EFBIG),        ZERO_NAME(EHOSTDOWN),
    ZERO_NAME(EHOSTUNREACH),  ZERO_NAME(EINPROGRESS),  ZERO_NAME(EINTR),
    ZERO_NAME(EINVAL),        ZERO_NAME(EIO),          ZERO_NAME(EISCONN),
    ZERO_NAME(EISDIR),        ZERO_NAME(ELOOP),        ZERO_NAME(EMFILE),
    ZERO_NAME(EMLINK),        ZERO_NAME(EMSGSIZE),     ZERO_NAME(ENAMETOOLONG),
    ZERO_NAME(ENETDOWN),      ZERO_NAME(ENETUNREACH),  ZERO_NAME(ENFILE),
    ZERO_NAME(ENOBUFS),       ZERO_NAME(ENODEV),       ZERO_NAME(ENOENT),
    ZERO_NAME(ENOLCK),        ZERO_NAME(ENOMEM),       ZERO_NAME(ENOSPC),
    ZERO_NAME(ENOSYS),        ZERO_NAME(ENOTCONN),     ZERO_NAME(ENOTDIR),
    ZERO_NAME(ENOTEMPTY),     ZERO_NAME(ENOTSOCK),     ZERO_NAME(ENOTSUP),
    ZERO_NAME(ENXIO),         ZERO_NAME(EOVERFLOW),    ZERO_NAME(EPERM),
    ZERO_NAME(EPIPE),         ZERO_NAME(EPROTO),       ZERO_NAME(ERANGE),
    ZERO_NAME(EREMOTEIO),     ZERO_NAME(EROFS),        ZERO_NAME(ESRCH),
    ZERO_NAME(ESTALE),        ZERO_NAME(ETIMEDOUT),    ZERO_NAME(ETXTBSY),
    ZERO_NAME(EXDEV)};
#undef ZERO_NAME

std::string errno_name(int error) {
  for (const ErrnoName& known : kErrnoNames) {
    if (known.error == error) return known.name;
  }
  return text("errno ", error);
}

// strerror_r returns the text (GNU), or a status with the text in `buffer` (POSIX).
[[maybe_unused]] const char* words(const char* answer, const char*) { return answer; }
[[maybe_unused]] const char* words(int status, const char* buffer) {
  return status == 0 ? buffer : "Unknown error";
}

/// Returns the length of the first character of `text`, or 0 if it is not valid.
size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80       ? 1
                        : lead >> 5 == 6  ? 2
                        : lead >> 4 == 14 ? 3
                        : lead >> 3 == 30 ? 4
                                          : 0;
  if (length == 0 || text.size() < length) return 0;
  uint32_t point = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t k = 1; k < length; k++) {
    if (!continues_character(text[k])) return 0;
    point = point << 6 | (static_cast<unsigned char>(text[k]) & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point < kSmallest[length] || point > 0x10FFFF || surrogate ? 0 : length;
}

}  // namespace

void append_text(std::string& out, double part) {
  char digits[40];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, part).ptr);
}

std::string hex_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::fabs(value), std::chars_format::hex);
  return text(std::signbit(value) ? "-0x" : "0x",
              std::string_view(digits, static_cast<size_t>(end.ptr - digits)));
}

std::string exact(double value) { return text(hex_double(value), " (", value, ")"); }

std::string errno_text(int error) {
  char buffer[256] = "";
  return text(words(strerror_r(error, buffer, sizeof buffer), buffer), " (", errno_name(error),
              ")");
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string as_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    out += bytes == 0 ? "?" : text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

std::string_view utf8_prefix(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && continues_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

}  // namespace zero
