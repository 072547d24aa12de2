// SPDX-License-Identifier: Apache-2.0
// One of a parameter's numbers, "step" or "mu_product".
#pragma once

#include "zero.h"

inline zero_status set_scalar(zero_optim* optim, int64_t param, const char* name, double value) {
  return zero_state_set(optim, param, name, 0, 1, &value);
}
