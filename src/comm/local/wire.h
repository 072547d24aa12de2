// SPDX-License-Identifier: Apache-2.0
// What ranks say to each other over sockets. Fixed sizes, no pointers; every message starts with
// the same words, so that versions that differ in everything else still understand that they do.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/os.h"
#include "base/text.h"
#include "comm/local/layout.h"
#include "comm/proof.h"

namespace zero::local {

inline constexpr uint64_t kWireMagic = 0x7a65726f6c6f6361;
inline constexpr uint32_t kProtocol = 3;
inline constexpr uint32_t kLibrary =
    ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100 + ZERO_VERSION_PATCH;

enum class Kind : uint32_t {
  hello = 1,
  ack,
  refusal,
  welcome,
  processes,
  ready,
  arena,
  challenge,
  answer
};

struct Prefix {
  uint64_t magic = kWireMagic;
  uint32_t protocol = kProtocol;
  uint32_t library = kLibrary;
  Kind kind;
  uint32_t unused = 0;

  explicit Prefix(Kind kind_of) : kind(kind_of) {}
  bool same_version() const { return protocol == kProtocol && library == kLibrary; }
};

/// A rank to rank 0, with its life page and perhaps a pidfd of its process.
struct Hello {
  static constexpr Kind kKind = Kind::hello;
  Prefix prefix{kKind};
  int32_t rank = 0;
  int32_t world = 0;
  int64_t pid = 0;
  int64_t limit_ms = 0;  // of its rendezvous, and what is left of that
  int64_t remaining_ms = 0;
  char device[16] = "host";  // what its memory is on: "host", "cuda"
  Nonce nonce{};
};

/// Rank 0 has read the hello, and shows that it knows the job's word.
struct Challenge {
  static constexpr Kind kKind = Kind::challenge;
  Prefix prefix{kKind};
  Nonce nonce{};
  Proof proof{};
};

/// So does the rank.
struct Answer {
  static constexpr Kind kKind = Kind::answer;
  Prefix prefix{kKind};
  Proof proof{};
};

/// Rank 0 has given the rank its seat; with its own life page and perhaps a pidfd.
struct Ack {
  static constexpr Kind kKind = Kind::ack;
  Prefix prefix{kKind};
};

/// There will be no comm.
struct Refusal {
  static constexpr Kind kKind = Kind::refusal;
  Prefix prefix{kKind};
  char text[1024] = {};
};

/// All ranks are there; with the control segment. `processes` life pages follow.
struct Welcome {
  static constexpr Kind kKind = Kind::welcome;
  Prefix prefix{kKind};
  Generation generation{};
  uint32_t processes = 0;
  uint32_t unused = 0;
};

/// Some of the processes, with the life page of each and the pidfds of some.
struct Processes {
  static constexpr Kind kKind = Kind::processes;
  static constexpr uint32_t kMost = 100;
  Prefix prefix{kKind};
  uint32_t first = 0;
  uint32_t count = 0;
  std::array<int32_t, kMost> pid{};
  std::array<uint8_t, kMost> has_pidfd{};
  uint32_t unused = 0;
};

/// A rank can use what it got, or could not: then `code` and `text` say why.
struct Ready {
  static constexpr Kind kKind = Kind::ready;
  Prefix prefix{kKind};
  int32_t code = 0;
  char text[1028] = {};
};

/// The memory of an arena, from rank 0.
struct ArenaOffer {
  static constexpr Kind kKind = Kind::arena;
  Prefix prefix{kKind};
  uint64_t attempt = 0;
  uint64_t bytes = 0;
};

/// Room for any message, and then some, so that a longer one is noticed.
struct MessageBuffer {
  alignas(8) std::byte bytes[2048];
  size_t got = 0;

  /// The message, copied, if it is a `Message` of our version.
  template <class Message>
  bool read(Message* out) const {
    static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) < sizeof bytes);
    if (got != sizeof(Message)) return false;
    std::memcpy(static_cast<void*>(out), bytes, sizeof(Message));
    return out->prefix.magic == kWireMagic && out->prefix.same_version() &&
           out->prefix.kind == Message::kKind;
  }

  /// The first words of a message of any version.
  bool read_prefix(Prefix* out) const {
    if (got < sizeof(Prefix)) return false;
    std::memcpy(static_cast<void*>(out), bytes, sizeof(Prefix));
    return out->magic == kWireMagic;
  }
};

template <class Message>
std::span<const std::byte> as_message(const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return std::as_bytes(std::span(&message, 1));
}

template <size_t size>
void put_wire_text(char (&to)[size], std::string_view from) {
  const std::string_view part = utf8_prefix(from, size - 1);
  part.copy(to, part.size());
  to[part.size()] = 0;
}

/// What another process has put there, whatever that is.
template <size_t size>
std::string wire_text(const char (&from)[size]) {
  return as_utf8({from, strnlen(from, size)});
}

/// "libzero 0.2.0 (protocol 1)"
inline std::string version_text(const Prefix& prefix) {
  return text("libzero ", prefix.library / 10000, ".", prefix.library / 100 % 100, ".",
              prefix.library % 100, " (protocol ", prefix.protocol, ")");
}

}  // namespace zero::local
