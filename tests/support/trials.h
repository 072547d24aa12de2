// SPDX-License-Identifier: Apache-2.0
// Counts the trials of a test. The test prints "trials: N" at its end for scripts/nightly.
#pragma once

namespace zero::test {

/// Counts one trial for the running test, in its process or in a forked one.
void count_trial();

}  // namespace zero::test
