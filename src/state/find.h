// SPDX-License-Identifier: Apache-2.0
// Which checkpoint a path means: itself, or the newest sound one in it.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace zero {

struct FoundCheckpoint {
  std::string path;
  std::string manifest;  // bytes, verified and parsed once
};

/// ZERO_ERR_CKPT_INVALID if there is none. `progress` is called for every manifest read.
Result<FoundCheckpoint> find_checkpoint(const std::string& path,
                                        const std::function<void()>& progress);

}  // namespace zero
