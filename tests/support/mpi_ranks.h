// SPDX-License-Identifier: Apache-2.0
// Ranks that an mpirun has started: one test program in several processes, which run the same tests
// in the same order. ZERO_TEST_MPI names the MPI that each opens and initializes.
#pragma once

namespace zero::test {

/// This process among them; 0 of 0 if no mpirun started it.
struct LaunchedRank {
  int rank = 0;
  int world = 0;
};
LaunchedRank launched();

}  // namespace zero::test
