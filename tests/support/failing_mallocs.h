// SPDX-License-Identifier: Apache-2.0
// Replaces malloc and related functions for this program and all its libraries. The n-th call from
// libzero.so, on any of its threads, fails once, or that call and all later ones fail. A test must
// link the shared library, because calls of a static library look like calls of the test.
#pragma once

#include <cstdint>

namespace zero::test {

enum class Fails { never, once, from_then_on };

/// Makes calls fail from now on. `at` counts from 1.
void fail_malloc(int64_t at, Fails fails);

/// Lets all calls succeed again. Returns the number of calls since fail_malloc.
int64_t mend_mallocs();

}  // namespace zero::test
