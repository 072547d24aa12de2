// SPDX-License-Identifier: Apache-2.0
// Generates combinations in which every legal pair of values occurs at least once. They need few
// runs, and most faults need no more than two conditions. The result is the same on every machine.
#pragma once

#include <cstddef>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace zero::test {

/// The index of a value on each axis.
using Combination = std::vector<size_t>;

/// `sizes` has the number of values of each axis, and is_legal(combination) accepts or rejects. If
/// `draws` random combinations with two values are all illegal, the two exclude each other.
template <class IsLegal>
std::vector<Combination> all_pairs(const std::vector<size_t>& sizes, const IsLegal& is_legal,
                                   int draws = 10'000) {
  using Value = std::pair<size_t, size_t>;  // axis, value
  std::set<std::pair<Value, Value>> seen;
  std::vector<Combination> made;
  std::mt19937_64 random(23);
  const auto for_each_pair = [&](const Combination& one, const auto& visit) {
    for (size_t a = 0; a < sizes.size(); a++) {
      for (size_t b = a + 1; b < sizes.size(); b++) visit(Value{a, one[a]}, Value{b, one[b]});
    }
  };
  const auto count_new = [&](const Combination& one) {
    size_t fresh = 0;
    for_each_pair(one, [&](Value a, Value b) { fresh += seen.count({a, b}) == 0; });
    return fresh;
  };
  for (size_t a = 0; a < sizes.size(); a++) {
    for (size_t b = a + 1; b < sizes.size(); b++) {
      for (size_t i = 0; i < sizes[a] * sizes[b]; i++) {
        const Value first{a, i / sizes[b]}, second{b, i % sizes[b]};
        if (seen.count({first, second}) != 0) continue;
        Combination best;
        size_t most = 0;
        for (int turn = 0; turn < (most > 0 ? 200 : draws); turn++) {
          Combination one;
          for (const size_t size : sizes) one.push_back(random() % size);
          one[a] = first.second;
          one[b] = second.second;
          if (!is_legal(one)) continue;
          if (const size_t fresh = count_new(one); fresh > most) {
            most = fresh;
            best = one;
          }
        }
        if (most == 0) continue;  // the two exclude each other
        for_each_pair(best, [&](Value x, Value y) { seen.insert({x, y}); });
        made.push_back(best);
      }
    }
  }
  return made;
}

}  // namespace zero::test
