// SPDX-License-Identifier: Apache-2.0
// A part of a transfer between hosts, on its way.
#pragma once

#include <vector>

#include "comm/hosts/hosts.h"
#include "comm/hosts/parts.h"
#include "device/memory.h"

namespace zero::hosts {

/// What a carrier of messages uses stays until the messages have ended, whatever becomes of the
/// comm.
struct HostsComm::Room {
  struct Message {
    int32_t rank;
    bool comes;
    Messages::Request request;
  };
  Part part;
  Memory sent, received;          // a row for each host, as long as any part of the transfer
  std::vector<Message> messages;  // that have not ended

  std::byte* row(const Memory& rows, size_t fellow) const {
    return rows.data() + fellow * part.most;
  }
};

}  // namespace zero::hosts
