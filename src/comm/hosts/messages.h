// SPDX-License-Identifier: Apache-2.0
// Messages between ranks of different hosts, carried by MPI or by the transport of a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "comm/comm.h"

namespace zero::hosts {

/// Ranks are those of the comm that uses the messages. Messages between two ranks arrive in the
/// order in which they were sent.
class Messages {
 public:
  /// A message in progress. The carrier uses its buffer until has_ended() returns true, even if the
  /// comm breaks or is freed.
  using Request = intptr_t;

  virtual ~Messages() = default;
  virtual const char* kind() const = 0;
  /// Returns OK, or why this thread may not send now.
  virtual Status check_caller() const { return {}; }

  virtual Result<Request> send(int32_t to, std::span<const std::byte> data) = 0;
  virtual Result<Request> receive(int32_t from, std::span<std::byte> data) = 0;
  virtual Result<bool> has_ended(Request& request) = 0;
  /// Lets the carrier make progress on messages that have ended here but are not sent yet. Any
  /// thread may call it.
  virtual void progress() {}
  /// Informs the carrier that some messages to or from this rank may never end.
  virtual void give_up() {}

  /// Collective, inside a Call. Returns messages for `members`, in their order, or nullptr if it is
  /// empty.
  virtual Result<std::unique_ptr<Messages>> of_some(Call& call,
                                                    std::span<const int32_t> members) const = 0;
};

}  // namespace zero::hosts
