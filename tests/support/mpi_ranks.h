// SPDX-License-Identifier: Apache-2.0
// Ranks that an mpirun has started: one test program in several processes, which run the same tests
// in the same order. ZERO_TEST_MPI names the MPI library that each process opens and initializes.
#pragma once

#include <vector>

namespace zero::test {

/// This process among the launched ranks. Both are 0 if no mpirun started it.
struct LaunchedRank {
  int rank = 0;
  int world = 0;
  std::vector<int> hosts = {};  // by rank

  bool several_hosts() const { return !hosts.empty() && hosts.front() != hosts.back(); }
};
LaunchedRank launched();

}  // namespace zero::test
