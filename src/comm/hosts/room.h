// SPDX-License-Identifier: Apache-2.0
// A part of a transfer between hosts, on its way.
#pragma once

#include <vector>

#include "comm/hosts/hosts.h"
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
  Memory sent, received;          // a row for each host
  std::vector<Message> messages;  // that have not ended
};

}  // namespace zero::hosts
