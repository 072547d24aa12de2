// SPDX-License-Identifier: Apache-2.0
// Ranks that act as if they were on several hosts: threads, or processes that are forked after the
// HostsRanks was created. Control messages use the connections between hosts. Data uses sockets in
// place of MPI.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "support/ranks.h"

namespace zero::test {

class Post;

/// Returns the host of each rank. Ranks are dealt to hosts in turn. By default there are two hosts
/// if each then has several ranks, and otherwise one host per rank.
std::vector<int> hosts_of(int32_t world, int32_t hosts = 0);

class HostsRanks {
 public:
  /// If `hosts` is given, each host has the same number of ranks, and the comm cannot be split.
  explicit HostsRanks(int32_t world, int32_t hosts = 0);
  ~HostsRanks();

  /// Returns the comm of `rank` among all ranks. They meet under `name`.
  Result<std::shared_ptr<Comm>> join(int32_t rank, const std::string& name,
                                     const CommOptions& options) const;

 private:
  const int32_t world_;
  const std::vector<int> hosts_;              // by rank
  std::vector<std::shared_ptr<Post>> posts_;  // by rank
  std::deque<KeptInChildren> kept_;
};

}  // namespace zero::test
