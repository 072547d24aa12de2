// SPDX-License-Identifier: Apache-2.0
// Save and load inside their call, which a rank also makes for others.
#pragma once

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero::api {

Status save(Call& call, Optimizer& optim, const char* directory, const zero_save_options* options);
Status load(Call& call, Optimizer& optim, const char* directory, const zero_load_options* options);

}  // namespace zero::api
