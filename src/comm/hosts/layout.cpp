// SPDX-License-Identifier: Apache-2.0
#include "comm/hosts/layout.h"

#include <algorithm>
#include <map>

namespace zero::hosts {

Layout Layout::of(std::span<const uint64_t> hosts) {
  const auto world = static_cast<int32_t>(hosts.size());
  std::vector<std::vector<int32_t>> ranks;  // by host
  std::map<uint64_t, size_t> numbers;
  for (int32_t r = 0; r < world; ++r) {
    const auto [found, is_new] = numbers.emplace(hosts[static_cast<size_t>(r)], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[found->second].push_back(r);
  }
  Layout layout;
  layout.is_even =
      std::ranges::all_of(ranks, [&](const auto& on) { return on.size() == ranks[0].size(); });
  if (!layout.is_even) {
    ranks.clear();
    for (int32_t r = 0; r < world; ++r) ranks.push_back({r});
  }
  layout.places = static_cast<int32_t>(ranks[0].size());
  layout.seats.resize(hosts.size());
  for (const std::vector<int32_t>& on : ranks) {
    for (const int32_t r : on) {
      const auto at = static_cast<int32_t>(layout.ranks.size());
      layout.seats[static_cast<size_t>(r)] = {at / layout.places, at % layout.places};
      layout.ranks.push_back(r);
    }
  }
  return layout;
}

bool Layout::parts_evenly(const Ranks& among) const {
  const auto world = static_cast<int32_t>(ranks.size());
  const int32_t step = among.stride == 1 ? among.count : 1;  // distance to the next subset
  const int32_t end = among.stride == 1 ? world : among.stride;
  for (int32_t first = 0; first < end; first += step) {
    std::map<int32_t, std::vector<int32_t>> places;  // by host
    for (int32_t i = 0; i < among.count; ++i) {
      const Seat& one = seat(first + i * among.stride);
      places[one.host].push_back(one.place);
    }
    for (const auto& [host, of_host] : places)
      if (of_host != places.begin()->second) return false;
  }
  return true;
}

}  // namespace zero::hosts
