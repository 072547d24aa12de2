// SPDX-License-Identifier: Apache-2.0
#include "comm/clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace zero {
namespace {

/// Ranks whose clocks are ahead of the true time by `ahead`, and what each rank finds out.
class Ranks {
 public:
  explicit Ranks(std::vector<int64_t> ahead) : ahead_(std::move(ahead)) {
    for (size_t r = 0; r < ahead_.size(); r++) seen_.emplace_back(static_cast<int32_t>(size()));
  }

  /// Makes one exchange: rank r arrives at came[r] in true time, and knows `way` after the last
  /// arrival that all have arrived.
  void meet(const std::vector<int64_t>& came, int64_t way) {
    const int64_t end = *std::ranges::max_element(came) + way;
    std::vector<Stamps> all;
    for (size_t r = 0; r < size(); r++) all.push_back(seen_[r].stamp(came[r] + ahead_[r]));
    for (size_t r = 0; r < size(); r++)
      seen_[r].take(all, static_cast<int32_t>(r), end + ahead_[r]);
  }
  size_t size() const { return ahead_.size(); }
  const Clocks& operator[](size_t rank) const { return seen_[rank]; }

 private:
  const std::vector<int64_t> ahead_;
  std::vector<Clocks> seen_;
};

constexpr int64_t kHour = 3'600'000'000'000, kMs = 1'000'000;

TEST(Clocks, of_one_host_are_one_and_the_last_rank_is_named_at_once) {
  Ranks ranks({0, 0, 0});
  ranks.meet({1 * kMs, 5 * kMs, 3 * kMs}, 1000);
  for (size_t r = 0; r < 3; r++) {
    EXPECT_EQ(ranks[r].last(), 1);
    for (int32_t other = 0; other < 3; other++) EXPECT_EQ(ranks[r].ahead_ns(other), 0);
  }
}

TEST(Clocks, that_differ_by_hours_are_known_to_the_time_of_a_message) {
  Ranks ranks({0, 3 * kHour, -kHour});
  int64_t now = kHour;
  for (int i = 0; i < 4; i++, now += 100 * kMs)
    ranks.meet({now, now + (i % 2) * kMs, now + 20 * kMs * (i % 3 == 0)}, 50'000);
  EXPECT_NEAR(static_cast<double>(ranks[0].ahead_ns(1)), 3.0 * kHour, 100'000);
  EXPECT_NEAR(static_cast<double>(ranks[2].ahead_ns(1)), 4.0 * kHour, 100'000);
  ranks.meet({now, now + 20 * kMs, now + 10 * kMs}, 50'000);
  for (size_t r = 0; r < 3; r++) EXPECT_EQ(ranks[r].last(), 1);
}

TEST(Clocks, that_drift_are_followed) {
  std::array<Clocks, 2> seen = {Clocks(2), Clocks(2)};
  // Rank 1's clock is fast by a thousandth.
  const auto on_1 = [](int64_t at) { return at + at / 1000; };
  for (int64_t at = kMs; at < 20'000 * kMs; at += 100 * kMs) {
    const std::array<Stamps, 2> all = {seen[0].stamp(at), seen[1].stamp(on_1(at))};
    seen[0].take(all, 0, at + 50'000);
    seen[1].take(all, 1, on_1(at + 50'000));
  }
  EXPECT_NEAR(static_cast<double>(seen[0].ahead_ns(1)), 20.0 * kMs, 0.5 * kMs);
}

TEST(Clocks, a_rank_that_does_not_look_leaves_open_who_came_last) {
  Clocks clocks(2);
  clocks.take(std::array<Stamps, 2>{Stamps{5, 0}, Stamps{}}, 0, 9);
  EXPECT_EQ(clocks.last(), -1);
}

}  // namespace
}  // namespace zero
