// SPDX-License-Identifier: Apache-2.0
// Ranks that believe to be on several hosts: threads, or processes that are forked after the
// HostsRanks was made. What they agree on goes over connections as between hosts; messages of data
// go over sockets that stand in for MPI.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "support/ranks.h"

namespace zero::test {

class Post;

/// Returns the host of each rank; ranks take turns. By default there are two if each then has
/// several ranks; otherwise each rank is on a host of its own.
std::vector<int> hosts_of(int32_t world, int32_t hosts = 0);

class HostsRanks {
 public:
  /// With a number of hosts, of which each has as many ranks, their comm is not split.
  explicit HostsRanks(int32_t world, int32_t hosts = 0);
  ~HostsRanks();

  /// The seat of `rank` in a comm of all, which begins at the name.
  Result<std::shared_ptr<Comm>> join(int32_t rank, const std::string& name,
                                     const CommOptions& options) const;

 private:
  const int32_t world_;
  const std::vector<int> hosts_;              // by rank
  std::vector<std::shared_ptr<Post>> posts_;  // by rank
  std::deque<KeptInChildren> kept_;
};

}  // namespace zero::test
