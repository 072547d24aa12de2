// SPDX-License-Identifier: Apache-2.0
// A part of a transfer between hosts, in flight.
#pragma once

#include <vector>

#include "comm/hosts/hosts.h"
#include "comm/hosts/parts.h"
#include "device/memory.h"

namespace zero::hosts {

/// The buffers stay allocated until the carrier's messages have ended, even if the comm breaks or
/// is freed.
struct HostsComm::Room {
  struct Message {
    int32_t rank;
    bool comes;
    Messages::Request request;
  };
  Part part;
  Memory sent, received;          // rows of `part.most` bytes, one for each host
  std::vector<Message> messages;  // those that have not ended

  std::byte* row(const Memory& rows, size_t fellow) const {
    return rows.data() + fellow * part.most;
  }
};

}  // namespace zero::hosts
