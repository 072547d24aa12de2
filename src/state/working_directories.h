// SPDX-License-Identifier: Apache-2.0
// A relative path means what a rank's working directory makes of it.
#pragma once

#include <string_view>

#include "comm/comm.h"

namespace zero {

/// `status`, how a call with `path` ended on all ranks. A failure of a relative path names the
/// working directories if ranks have different ones. Collective.
Status with_working_directories(Call& call, std::string_view path, Status status);

}  // namespace zero
