// SPDX-License-Identifier: Apache-2.0
// Ranks that look for each other, and strangers who speak their language.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/local/rendezvous.h"
#include "comm/local/wire.h"
#include "support/ranks.h"

namespace zero::test {

using Seat = std::shared_ptr<Comm>;

constexpr int64_t kLongMs = 20'000;

inline CommOptions within(int64_t rendezvous_ms) {
  CommOptions options;
  options.rendezvous_ms = rendezvous_ms;
  return options;
}

/// What a seat says that came to be, or why it did not: "ZERO_ERR_RENDEZVOUS: ...".
inline std::string outcome(const Result<Seat>& seat) {
  if (!seat.ok()) return outcome(seat.failure());
  Result<Call> call = (*seat)->begin(Operation::barrier);
  if (!call.ok()) return call.failure().text();
  const Status status = call->vote("test", {});
  return status.ok() ? "ok" : status.text();
}

/// A connection to whoever listens at `address`, once somebody does.
inline Fd dial_at(const std::string& address) {
  Fd connection;
  for (int i = 0; i < 2'000 && local::connect_to(address, &connection) != 0; ++i) usleep(500);
  return connection;
}

inline Fd dial(const std::string& name) { return dial_at(local::address_of_comm(name)); }

inline local::Vigil for_a_second() {
  return {now_ns() + 1'000'000'000, [] { return Status(); }};
}

inline void say(const Fd& connection, std::span<const std::byte> bytes,
                std::span<const int> descriptors = {}) {
  (void)local::send_message(connection.get(), bytes, descriptors, for_a_second());
}

inline std::string hear_refusal(const Fd& connection) {
  local::MessageBuffer buffer;
  std::vector<Fd> descriptors;
  for (;;) {
    Result<size_t> got =
        local::receive_message(connection.get(), buffer.bytes, &descriptors, for_a_second());
    if (!got.ok()) return text("nothing but ", got.failure().text());
    buffer.got = *got;
    local::Refusal refusal;
    if (buffer.read(&refusal)) return local::wire_text(refusal.text);
  }
}

/// Says hello as a rank does, and answers rank 0's challenge as who knows `word` does.
inline void introduce(const Fd& connection, const local::Hello& hello, int page,
                      std::string_view word = {}) {
  say(connection, local::as_message(hello), {&page, 1});
  local::MessageBuffer buffer;
  std::vector<Fd> descriptors;
  Result<size_t> got =
      local::receive_message(connection.get(), buffer.bytes, &descriptors, for_a_second());
  if (!got.ok()) return;
  buffer.got = *got;
  local::Challenge challenge;
  if (!buffer.read(&challenge)) return;
  local::Answer answer;
  answer.proof = prove(bytes_of(word), Role::guest, hello.rank, {hello.nonce, challenge.nonce});
  say(connection, local::as_message(answer));
}

}  // namespace zero::test
