// SPDX-License-Identifier: Apache-2.0
// Which ranks are on which host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.h"

namespace zero::hosts {

/// The placement of ranks. Hosts are numbered by their lowest ranks, and places on a host by rank.
struct Layout {
  struct Seat {
    int32_t host, place;
  };
  int32_t places = 1;          // on each host
  bool is_even = true;         // false: hosts differ in size, so each rank counts as one
  std::vector<int32_t> ranks;  // by host and place
  std::vector<Seat> seats;     // by rank

  /// `hosts` has an entry for each rank, which is equal for ranks on the same host.
  static Layout of(std::span<const uint64_t> hosts);

  int32_t hosts() const { return static_cast<int32_t>(ranks.size()) / places; }
  int32_t rank(int32_t host, int32_t place) const {
    return ranks[static_cast<size_t>(host * places + place)];
  }
  const Seat& seat(int32_t rank) const { return seats[static_cast<size_t>(rank)]; }
  /// Divides all ranks into subsets like `among`. Returns true if each subset has the same places
  /// on every host where it has ranks.
  bool parts_evenly(const Ranks& among) const;
  /// Returns the ranks of a host, by place.
  std::span<const int32_t> on(int32_t host) const {
    return std::span(ranks).subspan(static_cast<size_t>(host * places),
                                    static_cast<size_t>(places));
  }
};

}  // namespace zero::hosts
