// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of different hosts, by whatever carries them: MPI, or a test's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "comm/comm.h"

namespace zero::hosts {

/// Ranks are those of the comm whose messages these are. Between two ranks messages come in the
/// order in which they were sent.
class Messages {
 public:
  /// A message that has begun. The carrier uses its bytes until has_ended() says that it has ended,
  /// whatever becomes of the comm.
  using Request = intptr_t;

  virtual ~Messages() = default;
  virtual const char* kind() const = 0;
  /// Returns why this thread may send nothing now.
  virtual Status check_caller() const { return {}; }

  virtual Result<Request> send(int32_t to, std::span<const std::byte> data) = 0;
  virtual Result<Request> receive(int32_t from, std::span<std::byte> data) = 0;
  virtual Result<bool> has_ended(Request& request) = 0;
  /// Lets the carrier go on with what has ended here, but has not left yet. Any thread may call it.
  virtual void progress() {}
  /// Says that some messages, of this rank or to it, may never end.
  virtual void give_up() {}

  /// Collective, inside a Call. Returns those of `members`, in their order; of none: nullptr.
  virtual Result<std::unique_ptr<Messages>> of_some(Call& call,
                                                    std::span<const int32_t> members) const = 0;
};

}  // namespace zero::hosts
