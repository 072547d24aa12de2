// SPDX-License-Identifier: Apache-2.0
// Makes a comm of ranks by what a comm that they have already tells: a local one if they are on one
// host, otherwise one over hosts.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "comm/hosts/messages.h"

namespace zero::hosts {

/// Makes the messages of a comm that has several hosts.
using MakeMessages = std::function<Result<std::unique_ptr<Messages>>()>;

/// Returns words that ranks of one host share, and most others do not.
std::string host_words();

/// Collective, inside a Call of any comm, on every rank of it. Returns the seat among `members` (of
/// that comm, in the new one's order), where this rank has `place`; nullptr if there are none.
/// `host` is the same on ranks that seem to be on one host; whether they are is tried. With "" each
/// counts as a host. Fails where this rank does (the caller votes).
Result<std::shared_ptr<Comm>> form(Call& call, std::span<const int32_t> members, int32_t place,
                                   const CommOptions& options, std::string_view host,
                                   const MakeMessages& make_messages);

}  // namespace zero::hosts
