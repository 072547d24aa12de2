// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "comm/hosts/layout.h"

namespace zero::hosts {
namespace {

TEST(Hosts, are_numbered_by_their_lowest_ranks_and_places_by_rank) {
  const std::vector<uint64_t> hosts = {7, 3, 7, 3};
  const Layout layout = Layout::of(hosts);
  EXPECT_EQ(layout.hosts(), 2);
  EXPECT_EQ(layout.ranks, (std::vector<int32_t>{0, 2, 1, 3}));
  EXPECT_EQ(layout.rank(1, 0), 1);
  EXPECT_EQ(layout.seat(2).host, 0);
  EXPECT_EQ(layout.seat(2).place, 1);
}

TEST(Hosts, with_unequal_numbers_of_ranks_are_as_many_as_ranks) {
  const std::vector<uint64_t> hosts = {1, 2, 1};
  const Layout layout = Layout::of(hosts);
  EXPECT_EQ(layout.places, 1);
  EXPECT_EQ(layout.hosts(), 3);
  EXPECT_EQ(layout.ranks, (std::vector<int32_t>{0, 1, 2})) << "sums are in the order of ranks";
}

TEST(Hosts, gather_among_some_by_fellows_only_where_these_have_the_same_places) {
  const std::vector<uint64_t> hosts = {1, 1, 2, 2, 3, 3};
  const Layout layout = Layout::of(hosts);
  EXPECT_TRUE(layout.parts_evenly({0, 1, 6}));
  EXPECT_TRUE(layout.parts_evenly({2, 1, 2})) << "an instance a host";
  EXPECT_TRUE(layout.parts_evenly({1, 2, 3})) << "copies, one a host";
  EXPECT_FALSE(layout.parts_evenly({0, 1, 3})) << "instances of a host and a half";
}

}  // namespace
}  // namespace zero::hosts
