// SPDX-License-Identifier: Apache-2.0
// Introductions of both sides of a rendezvous, and texts about them.
#include "comm/rendezvous.h"

#include <algorithm>

#include "base/text.h"
#include "comm/process.h"

namespace zero {

Proof prove(std::span<const std::byte> word, Role role, int32_t rank, const Nonces& nonces) {
  struct {
    Role role;
    int32_t rank;
    Nonces nonces;
  } const said{role, rank, nonces};
  static_assert(sizeof said == 8 + sizeof nonces);  // no padding
  return hmac_sha256(word, as_payload(said));
}

/// Returns "process 7 on HOST". Another host's text ends before its first unprintable character.
std::string Introduction::process() const {
  const std::string all = text_in(host);
  const auto end = std::find_if(all.begin(), all.end(), [](char c) { return c < '!' || c > '~'; });
  return text("process ", pid, end == all.begin() ? "" : " on ", std::string(all.begin(), end));
}

std::string Introduction::name() const {
  return text("rank ", called_rank(), " (", process(), ")");
}

std::string Introduction::name_and_state() const {
  return text("rank ", called_rank(), " (process ", pid, ", ",
              process_state(static_cast<pid_t>(pid)), ")");
}

Status Meeting::failed(std::string_view sentence) const {
  return Status(ZERO_ERR_RENDEZVOUS, text(title, title.empty() ? "" : ": ", sentence));
}

Introduction Meeting::introduction() const {
  Introduction mine;
  mine.rank = rank;
  mine.world = world;
  mine.called = called(rank);
  mine.pid = os().getpid();
  mine.limit_ms = limit_ms;
  mine.remaining_ms = deadline.left_ms();
  put_text(mine.device, device);
  put_text(mine.host, host);
  return mine;
}

bool Partner::died() const {
  constexpr int64_t kEndMs = 100;  // from the end of a connection to the kernel's report
  const Deadline deadline(kEndMs);
  while (!witness->ask()) {
    if (deadline.passed()) return false;
    // Wait: a slice of kEndMs.
    sleep_ms(1);
  }
  return true;
}

std::string Partner::end() const {
  if (witness == nullptr) return " died: its connection was closed";
  return died() ? " died" : " gave up its rendezvous";
}

}  // namespace zero
