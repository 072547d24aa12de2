// SPDX-License-Identifier: Apache-2.0
// Compiles the checks of header.c, and nothing else, as C++.
#include "header.c"

static_assert(sizeof(zero_status) == 4, "a status has one size in every language");
