// SPDX-License-Identifier: Apache-2.0
// Creates a comm of ranks that already share a comm: a local comm if they are on one host, and
// otherwise a comm over hosts.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "comm/hosts/messages.h"

namespace zero::hosts {

/// Creates the messages of a comm over several hosts.
using MakeMessages = std::function<Result<std::unique_ptr<Messages>>()>;

/// Returns a text that ranks of one host share, and that differs on most other hosts.
std::string host_words();

/// Creates a comm of `members`, which are ranks of the call's comm in the new order. This rank
/// becomes `place`. Returns nullptr if `members` is empty. `host` is equal on ranks that may be on
/// one host, which is tested. With "", each rank counts as a host. Collective, inside a Call, on
/// every rank of its comm. A failure is this rank's own (the caller votes).
Result<std::shared_ptr<Comm>> form(Call& call, std::span<const int32_t> members, int32_t place,
                                   const CommOptions& options, std::string_view host,
                                   const MakeMessages& make_messages);

}  // namespace zero::hosts
