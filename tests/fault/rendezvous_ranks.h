// SPDX-License-Identifier: Apache-2.0
// Ranks that meet, and strangers that speak their protocol.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/local/rendezvous.h"
#include "comm/rendezvous.h"
#include "support/ranks.h"

namespace zero::test {

using Seat = std::shared_ptr<Comm>;

constexpr int64_t kLongMs = 20'000;

inline CommOptions within(int64_t rendezvous_ms) {
  CommOptions options;
  options.rendezvous_ms = rendezvous_ms;
  return options;
}

/// Returns "ok" for a working seat, or its error: "ZERO_ERR_RENDEZVOUS: ...".
inline std::string outcome(const Result<Seat>& seat) {
  if (!seat.ok()) return outcome(seat.failure());
  Result<Call> call = (*seat)->begin(Operation::barrier);
  if (!call.ok()) return call.failure().text();
  const Status status = call->vote("test", {});
  return status.ok() ? "ok" : status.text();
}

/// Connects to `address` as soon as somebody listens there.
inline Link dial_at(const std::string& address) {
  Fd connection;
  for (int i = 0; i < 2'000 && start_connect(place_of(address), &connection) != 0; ++i) usleep(500);
  return Link(std::move(connection));
}

inline Link dial(const std::string& name) { return dial_at(local::address_of_comm(name)); }

/// Accepts the next connection to a false rank 0.
inline Link accept_one(const Fd& listener) {
  Fd connection;
  while (!connection.valid()) {
    connection = accept_connection(listener.get());
    usleep(500);
  }
  return Link(std::move(connection));
}

inline Bounds for_a_second() {
  return {1'000, [] { return Status(); }};
}

inline std::string hear_refusal(Link& connection) {
  for (;;) {
    Result<Frame> frame = hear(connection, for_a_second());
    if (!frame.ok()) return text("nothing but ", frame.failure().text());
    if (frame->kind == FrameKind::refusal) return text_of(*frame);
  }
}

/// Returns the introduction of a rank on the host.
inline Introduction hello_of(int32_t rank, int32_t world) {
  Introduction hello;
  hello.rank = rank;
  hello.world = world;
  put_text(hello.device, "host");
  return hello;
}

/// Sends a hello like a rank, and confirms with the secret `word`.
inline void introduce(Link& connection, const Introduction& hello, int page,
                      std::string_view word = {}) {
  connection.send(FrameKind::hello, 0, as_payload(hello), {&page, 1});
  const Result<Frame> frame = hear(connection, for_a_second());
  if (!frame.ok()) return;
  const std::optional<Welcome> welcome = read<Welcome>(*frame, FrameKind::welcome);
  if (!welcome) return;
  connection.send(FrameKind::confirm, 0,
                  as_payload(prove(bytes_of(word), Role::guest, hello.rank,
                                   {hello.nonce, welcome->root.nonce})));
}

}  // namespace zero::test
