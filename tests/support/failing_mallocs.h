// SPDX-License-Identifier: Apache-2.0
// malloc and its like as this program and all its libraries see them: of those that libzero.so
// itself calls, from any of its threads, the n-th fails, once or from then on. A test that uses it
// links the shared library: what is linked statically could not be told from the test.
#pragma once

#include <cstdint>

namespace zero::test {

enum class Fails { never, once, from_then_on };

/// From now on, counted from 1.
void fail_malloc(int64_t at, Fails fails);

/// All succeed again. Returns how many there were since fail_malloc.
int64_t mend_mallocs();

}  // namespace zero::test
