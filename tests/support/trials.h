// SPDX-License-Identifier: Apache-2.0
// How many trials a test makes: a line "trials: N" at its end, which scripts/nightly reads.
#pragma once

namespace zero::test {

/// Counts one for the running test, in its process or in one that it has forked.
void count_trial();

}  // namespace zero::test
