// SPDX-License-Identifier: Apache-2.0
// zero.h as C++: what header.c holds, and nothing else.
#include "header.c"

static_assert(sizeof(zero_status) == 4, "a status has one size in every language");
