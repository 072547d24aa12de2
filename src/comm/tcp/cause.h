// SPDX-License-Identifier: Apache-2.0
// A Failure as it travels between ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/comm.h"

namespace zero::tcp {

std::vector<std::byte> pack(const Failure& failure);
/// Anything that is no packed Failure becomes ZERO_ERR_COMM, which says so.
Failure unpack(std::span<const std::byte> bytes);

}  // namespace zero::tcp
