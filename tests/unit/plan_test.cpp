// SPDX-License-Identifier: Apache-2.0
// Properties of the plan over random sizes, worlds, rules and seals, and its rules against naive
// models.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace zero {
namespace {

constexpr int32_t kRules[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                              ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL};

using Kind = std::pair<DType, DType>;
constexpr Kind kKinds[] = {{DType::f32, DType::f32},
                           {DType::bf16, DType::bf16},
                           {DType::bf16, DType::f32},
                           {DType::f16, DType::bf16},
                           {DType::f64, DType::f64}};

using Groups = std::vector<std::vector<PlanParam>>;

struct Case {
  PlanOptions options;
  std::vector<Groups> seals;
  size_t dealt = 0;  // all that the first so many sealed is dealt out anew behind them; 0: nothing

  std::vector<PlanParam> params() const { return params(seals.size()); }
  std::vector<PlanParam> params(size_t sealed) const {
    std::vector<PlanParam> all;
    for (size_t s = 0; s < sealed; ++s) {
      for (const auto& group : seals[s]) all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }
  std::vector<int64_t> group_ends(size_t sealed) const {
    std::vector<int64_t> ends;
    int64_t end = 0;
    for (size_t s = 0; s < sealed; ++s) {
      for (const auto& group : seals[s]) ends.push_back(end += static_cast<int64_t>(group.size()));
    }
    return ends;
  }
};

/// What rests makes a difference only where all is dealt out anew.
Status add(Plan& plan, const Groups& groups) {
  std::vector<PlanParam> params;
  std::vector<int64_t> ends;
  for (const auto& group : groups) {
    params.insert(params.end(), group.begin(), group.end());
    ends.push_back(static_cast<int64_t>(params.size()));
  }
  for (PlanParam& param : params) param.rests = false;
  return plan.add(params, ends);
}

Plan anew(const Plan& plan, const Case& given, size_t sealed) {
  const Result<Plan> dealt = plan.anew(given.params(sealed), given.group_ends(sealed));
  EXPECT_TRUE(dealt.ok()) << dealt.failure().text();
  return *dealt;
}

Plan make(const Case& given) {
  Plan plan(given.options);
  for (size_t s = 0; s < given.seals.size(); ++s) {
    const Status status = add(plan, given.seals[s]);
    EXPECT_TRUE(status.ok()) << status.text();
    if (s + 1 == given.dealt) plan = anew(plan, given, given.dealt);
  }
  return plan;
}

Case undealt(Case given) {
  given.dealt = 0;
  return given;
}

Groups one_group(const std::vector<int64_t>& counts) {
  Groups groups(1);
  for (size_t i = 0; i < counts.size(); ++i) {
    groups[0].push_back({counts[i], static_cast<int64_t>(i), 0});
  }
  return groups;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit));
  }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int64_t>(list.size())));
  }

 private:
  std::mt19937_64 engine_;
};

int64_t random_count(Random& random) {
  switch (random.below(8)) {
    case 0:
      return random.below(3);  // none, one, two elements
    case 1:
      return 16 * random.below(200);
    case 2:
      return kBlock * random.below(12);
    case 3:
      return random.below(120'000);
    default:
      return random.below(3'000);
  }
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case made;
  made.options.rule = kRules[random.below(4)];
  made.options.world = random.one_of<int32_t>({1, 2, 3, 4, 5, 7, 8, 16, 61});
  made.options.bucket_bytes =
      4 * random.one_of<int64_t>({1, 1024, 5000, 20'000, 64 * 1024, 8'388'608});
  const bool one_dtype = random.below(2) == 0;
  const int64_t seals = 1 + random.below(4);
  int64_t order = 0;
  for (int64_t s = 0; s < seals; ++s) {
    Groups groups(static_cast<size_t>(1 + random.below(3)));
    for (auto& group : groups) {
      const int64_t params = random.below(14);
      for (int64_t i = 0; i < params; ++i) {
        const int64_t position = random.below(3) == 0 ? random.below(10) : order++;
        const Kind kind = one_dtype ? kKinds[0] : kKinds[random.below(std::size(kKinds))];
        group.push_back({random_count(random), position,
                         static_cast<int32_t>(random.below(made.options.world)), kind.first,
                         kind.second});
      }
    }
    made.seals.push_back(groups);
  }
  if (random.below(2) == 0) return made;
  made.dealt = static_cast<size_t>(1 + random.below(seals));
  const int64_t resting = random.below(4);  // none, or one in two, three, four
  for (Groups& groups : made.seals) {
    for (auto& group : groups) {
      for (PlanParam& param : group) param.rests = resting > 0 && random.below(resting + 1) == 0;
    }
  }
  return made;
}

/// To the end of what `rank` owns in the last section where it owns something.
int64_t share_end(const Plan& plan, int32_t rank) {
  int64_t end = 0;
  for (size_t s = 0; s < plan.sections().size(); ++s) {
    const int64_t elements = plan.share_elements(s, rank);
    if (elements > 0) end = plan.sections()[s].share + elements;
  }
  return end;
}

void for_random_cases(const std::function<void(const Case&, const Plan&)>& check) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Case given = random_case(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", rule " + std::to_string(given.options.rule) +
                 ", world " + std::to_string(given.options.world) + ", dealt after " +
                 std::to_string(given.dealt));
    check(given, make(given));
    if (testing::Test::HasFailure()) return;
  }
}

/// Intervals [begin, end) that must not overlap and must lie within [0, size).
void expect_disjoint(std::vector<std::pair<int64_t, int64_t>> intervals, int64_t size) {
  std::sort(intervals.begin(), intervals.end());
  int64_t end = 0;
  for (const auto& [first, last] : intervals) {
    if (first == last) continue;
    EXPECT_LE(end, first);
    end = last;
  }
  EXPECT_LE(end, size);
}

TEST(Plan, shards_cover_every_element_once) {
  for_random_cases([](const Case& given, const Plan& plan) {
    const std::vector<PlanParam> params = given.params();
    ASSERT_EQ(plan.params(), static_cast<int64_t>(params.size()));
    std::vector<std::vector<int>> owners(params.size());
    for (size_t i = 0; i < params.size(); ++i)
      owners[i].assign(static_cast<size_t>(params[i].count), -1);
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      int64_t owned = 0;
      for (const Segment& segment : plan.segments(rank)) {
        ASSERT_GT(segment.count, 0);
        owned += segment.count;
        auto& elements = owners[static_cast<size_t>(segment.param)];
        ASSERT_LE(segment.first + segment.count, static_cast<int64_t>(elements.size()));
        for (int64_t e = segment.first; e < segment.first + segment.count; ++e) {
          ASSERT_EQ(elements[static_cast<size_t>(e)], -1);
          elements[static_cast<size_t>(e)] = rank;
        }
      }
      EXPECT_EQ(owned, plan.owned_elements(rank));
    }
    for (size_t i = 0; i < params.size(); ++i) {
      const auto& elements = owners[i];
      EXPECT_EQ(std::count(elements.begin(), elements.end(), -1), 0);
      const int32_t owner = plan.owner(static_cast<int64_t>(i));
      if (elements.empty()) {
        EXPECT_GE(owner, 0);
        EXPECT_LT(owner, given.options.world);
        continue;
      }
      const bool whole = std::count(elements.begin(), elements.end(), elements[0]) ==
                         static_cast<int64_t>(elements.size());
      EXPECT_EQ(owner, whole ? elements[0] : ZERO_OWNER_SPLIT);
    }
  });
}

TEST(Plan, the_segments_of_a_parameter_are_those_of_its_owners) {
  for_random_cases([](const Case& given, const Plan& plan) {
    using Row = std::tuple<int64_t, int64_t, int64_t, int64_t, int32_t, int32_t>;
    const auto row = [](int32_t owner, const Segment& s) {
      return Row{s.param, s.first, s.count, s.share, s.section, owner};
    };
    std::vector<Row> by_rank, by_param;
    for (int32_t rank = 0; rank < given.options.world; ++rank)
      for (const Segment& segment : plan.segments(rank)) by_rank.push_back(row(rank, segment));
    for (int64_t param = 0; param < plan.params(); ++param)
      for (const auto& [owner, segment] : plan.segments_of(param))
        by_param.push_back(row(owner, segment));
    std::sort(by_rank.begin(), by_rank.end());
    EXPECT_EQ(by_param, by_rank);
  });
}

TEST(Plan, share_positions_are_aligned_rise_and_fit) {
  for_random_cases([](const Case& given, const Plan& plan) {
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      int64_t end = 0;
      for (const Segment& segment : plan.segments(rank)) {
        EXPECT_GE(segment.share, end);
        // State is as aligned as the parameter's own memory is.
        EXPECT_EQ((segment.share - segment.first) % kAlignment, 0);
        end = segment.share + segment.count;
      }
      // As small as it can be, up to alignment; dealt out anew there may be a gap in its last
      // block.
      const int64_t least = (end + kAlignment - 1) / kAlignment * kAlignment;
      EXPECT_GE(share_end(plan, rank), least);
      EXPECT_LE(share_end(plan, rank), least + (given.dealt > 0 ? kBlock - kAlignment : 0));
    }
  });
}

TEST(Plan, layout_positions_are_aligned_apart_and_fit) {
  for_random_cases([](const Case& given, const Plan& plan) {
    std::vector<std::pair<int64_t, int64_t>> intervals;
    const std::vector<PlanParam> params = given.params();
    for (size_t i = 0; i < params.size(); ++i) {
      const int64_t begin = plan.layout(static_cast<int64_t>(i));
      EXPECT_EQ(begin % kAlignment, 0);
      // With its padding: ZERO_PARAM_PADDED lets that be written.
      const int64_t padded = (params[i].count + kAlignment - 1) / kAlignment * kAlignment;
      intervals.emplace_back(begin, begin + padded);
    }
    expect_disjoint(intervals, plan.layout_elements());
  });
}

/// Follows every element from the layout through the transfers into its owner's share.
void expect_transfers_carry_everything(const Case& given, const Plan& plan, bool in_place) {
  std::map<int64_t, Transfer> by_share;
  int64_t carried_end = 0;
  int64_t layout_end = 0;
  for (const Transfer& transfer : plan.transfers(in_place)) {
    EXPECT_GT(transfer.chunk, 0);
    EXPECT_EQ(transfer.share, carried_end) << "in order of travel, without gaps";
    carried_end += transfer.chunk;
    by_share[transfer.share] = transfer;
    if (in_place) {
      EXPECT_EQ(transfer.layout, layout_end);
    }
    if (transfer.layout >= 0) layout_end = transfer.layout + transfer.chunk * given.options.world;
  }
  if (in_place) {
    EXPECT_EQ(layout_end, plan.layout_elements());
  }

  for (int32_t rank = 0; rank < given.options.world; ++rank) {
    EXPECT_LE(share_end(plan, rank), carried_end);
    int64_t carried = 0;
    for (const auto& [share, transfer] : by_share) {
      for (const Segment& part : Plan::within(plan.segments(rank), share, transfer.chunk)) {
        carried += part.count;
        if (transfer.layout < 0) continue;
        EXPECT_EQ(plan.layout(part.param) + part.first,
                  transfer.layout + rank * transfer.chunk + part.share - share);
      }
    }
    EXPECT_EQ(carried, plan.owned_elements(rank));
  }
}

TEST(Plan, transfers_in_place_match_layout_and_share) {
  for_random_cases([](const Case& given, const Plan& plan) {
    expect_transfers_carry_everything(given, plan, true);
  });
}

TEST(Plan, packed_transfers_carry_everything_in_bounded_pieces) {
  for_random_cases([](const Case& given, const Plan& plan) {
    expect_transfers_carry_everything(given, plan, false);
    for (const Transfer& transfer : plan.transfers(false)) {
      const Section& section = plan.sections()[static_cast<size_t>(transfer.section)];
      const int64_t elements_of_bucket =
          given.options.bucket_bytes / static_cast<int64_t>(size_of(section.dtype));
      EXPECT_LE(transfer.chunk, std::max(kBlock, elements_of_bucket / given.options.world));
      EXPECT_EQ(transfer.chunk % kAlignment, 0);
    }
  });
}

TEST(Plan, even_buckets_travel_in_place_even_when_packed) {
  Case given{{3, ZERO_PARTITION_EVEN, 4 * 9000}, {one_group({30'000, 500, 70'000})}};
  const Plan plan = make(given);
  const std::vector<Transfer> packed = plan.transfers(false);
  const std::vector<Transfer> in_place = plan.transfers(true);
  ASSERT_EQ(packed.size(), in_place.size());
  for (size_t i = 0; i < packed.size(); ++i) EXPECT_EQ(packed[i].layout, in_place[i].layout);
}

TEST(Plan, grid_depends_on_neither_world_nor_rule_nor_bucket) {
  for_random_cases([](const Case& given, const Plan& plan) {
    for (const int32_t rule : kRules) {
      Case other = given;
      other.options = {1, rule, 4096};
      for (Groups& groups : other.seals) {
        for (auto& group : groups) {
          for (PlanParam& param : group) param.owner = 0;
        }
      }
      const Plan alone = make(other);
      for (int64_t i = 0; i < plan.params(); ++i) EXPECT_EQ(plan.grid(i), alone.grid(i));
    }
  });
}

TEST(Plan, grid_is_by_falling_order_with_later_ones_first_on_ties) {
  Plan plan({4, ZERO_PARTITION_EVEN, 4096});
  // In order of travel: 3 (order 9), 4 and 1 (order 5), 2, 0.
  ASSERT_TRUE(add(plan, {{{10, -2, 0}, {17, 5, 0}, {1, 0, 0}}, {{32, 9, 0}, {100, 5, 0}}}).ok());
  EXPECT_EQ(plan.grid(3), 0);
  EXPECT_EQ(plan.grid(4), 32);
  EXPECT_EQ(plan.grid(1), 32 + 112);
  EXPECT_EQ(plan.grid(2), 32 + 112 + 32);
  EXPECT_EQ(plan.grid(0), 32 + 112 + 32 + 16);
  ASSERT_TRUE(add(plan, {{{5, 100, 0}}}).ok());
  EXPECT_EQ(plan.grid(5), kBlock);
}

/// Under EVEN a norm's piece, one parameter's part of one block, has one owner, and before anything
/// is dealt out anew a whole block has.
TEST(Plan, blocks_have_one_owner_under_even) {
  for_random_cases([](const Case& given, const Plan& plan) {
    if (given.options.rule != ZERO_PARTITION_EVEN) return;
    std::map<std::pair<int64_t, int64_t>, int32_t> owners;
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      for (const Segment& segment : plan.segments(rank)) {
        const int64_t begin = plan.grid(segment.param) + segment.first;
        for (int64_t block = begin / kBlock; block * kBlock < begin + segment.count; ++block) {
          const int64_t param = given.dealt > 0 ? segment.param : 0;
          const auto [known, added] = owners.emplace(std::pair(param, block), rank);
          EXPECT_EQ(known->second, rank) << "block " << block;
        }
      }
    }
  });
}

TEST(Plan, even_shares_differ_by_at_most_a_block_a_section) {
  for_random_cases([](const Case& given, const Plan& plan) {
    if (given.options.rule != ZERO_PARTITION_EVEN) return;
    const auto sections = static_cast<int64_t>(plan.sections().size());
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      std::map<int64_t, int64_t> blocks;
      for (const Segment& segment : plan.segments(rank)) {
        const int64_t begin = plan.layout(segment.param) + segment.first;
        for (int64_t b = begin / kBlock; b * kBlock < begin + segment.count; ++b) ++blocks[b];
      }
      least = std::min(least, static_cast<int64_t>(blocks.size()));
      most = std::max(most, static_cast<int64_t>(blocks.size()));
      EXPECT_LE(share_end(plan, rank),
                static_cast<int64_t>(blocks.size()) * kBlock + (sections - 1) * kBlock);
    }
    EXPECT_LE(most - least, sections);
  });
}

TEST(Plan, even_layout_is_padded_by_less_than_a_block_a_rank_and_section) {
  for_random_cases([](const Case& given, const Plan& plan) {
    if (given.options.rule != ZERO_PARTITION_EVEN || given.dealt > 0) return;
    const std::vector<PlanParam> params = given.params();
    int64_t elements = 0;
    for (const PlanParam& param : params) elements += param.count;
    const int64_t slack =
        static_cast<int64_t>(params.size()) * kAlignment +
        static_cast<int64_t>(plan.sections().size()) * kBlock * given.options.world;
    EXPECT_LE(plan.layout_elements(), elements + slack);
  });
}

TEST(Plan, earlier_owners_and_places_never_move_on_add) {
  for_random_cases([](const Case& given, const Plan&) {
    Plan plan(given.options);
    for (const Groups& groups : given.seals) {
      const Plan before = plan;
      ASSERT_TRUE(add(plan, groups).ok());
      for (int32_t rank = 0; rank < given.options.world; ++rank) {
        const std::vector<Segment> old = before.segments(rank);
        const std::vector<Segment> now = plan.segments(rank);
        ASSERT_GE(now.size(), old.size());
        for (size_t i = 0; i < old.size(); ++i) {
          EXPECT_EQ(now[i].param, old[i].param);
          EXPECT_EQ(now[i].first, old[i].first);
          EXPECT_EQ(now[i].count, old[i].count);
          EXPECT_EQ(now[i].share, old[i].share);
        }
      }
      for (int64_t i = 0; i < before.params(); ++i) {
        EXPECT_EQ(plan.layout(i), before.layout(i));
        EXPECT_EQ(plan.grid(i), before.grid(i));
        EXPECT_EQ(plan.owner(i), before.owner(i));
      }
    }
  });
}

/// The greedy rules as they are told: a list of totals, searched from the start for every tensor.
std::vector<int32_t> naive_greedy(const Case& given) {
  std::vector<int64_t> totals(static_cast<size_t>(given.options.world), 0);
  std::vector<int32_t> owners;
  for (const Groups& groups : given.seals) {
    for (const auto& group : groups) {
      std::vector<int32_t> of_group(group.size(), -1);
      for (size_t turn = 0; turn < group.size(); ++turn) {
        size_t next = group.size();
        for (size_t i = 0; i < group.size(); ++i) {
          if (of_group[i] >= 0) continue;
          const bool first = next == group.size();
          const bool larger = !first && given.options.rule == ZERO_PARTITION_GREEDY &&
                              group[i].count > group[next].count;
          if (first || larger) next = i;
        }
        const auto least = std::min_element(totals.begin(), totals.end());
        of_group[next] = static_cast<int32_t>(least - totals.begin());
        *least += group[next].count;
      }
      owners.insert(owners.end(), of_group.begin(), of_group.end());
    }
  }
  return owners;
}

TEST(Plan, greedy_rules_equal_a_naive_model) {
  for_random_cases([](const Case& given, const Plan& plan) {
    const int32_t rule = given.options.rule;
    if (rule == ZERO_PARTITION_EVEN || rule == ZERO_PARTITION_MANUAL || given.dealt > 0) return;
    const std::vector<int32_t> owners = naive_greedy(given);
    for (int64_t i = 0; i < plan.params(); ++i) {
      EXPECT_EQ(plan.owner(i), owners[static_cast<size_t>(i)]) << "parameter " << i;
    }
  });
}

TEST(Plan, dealt_anew_moves_nothing_where_one_seal_is_all_trained) {
  for_random_cases([](const Case& given, const Plan&) {
    Case one = undealt(given);
    one.seals.resize(1);
    for (auto& group : one.seals[0]) {
      for (PlanParam& param : group) param.rests = false;
    }
    const Plan plan = make(one);
    const Plan again = anew(plan, one, 1);
    EXPECT_TRUE(again.places_as(plan));
    EXPECT_TRUE(plan.in_place());
    EXPECT_FALSE(again.in_place());
  });
}

/// Parameters keep their distances on the grid up to whole blocks. So what is trained leaves room
/// where something rested, and the other way round: less than a block for each, and never more than
/// what stood there.
TEST(Plan, dealt_anew_keeps_the_grid_and_leaves_small_gaps) {
  for_random_cases([](const Case& given, const Plan& plan) {
    if (given.dealt == 0) return;
    const Plan before = make(undealt(given));
    for (int64_t i = 0; i < plan.params(); ++i) EXPECT_EQ(plan.grid(i), before.grid(i));
    if (given.options.rule != ZERO_PARTITION_EVEN) return;
    const auto ends = static_cast<int64_t>(plan.sections().size() + before.sections().size());
    const int64_t gaps = std::min(plan.params() * kBlock, before.layout_elements());
    EXPECT_LE(plan.layout_elements(),
              before.layout_elements() + gaps + ends * kBlock * given.options.world);
  });
}

/// What rests comes behind what does not, so the greedy rules deal it out as if it were a group
/// that came later; and the even rule gives every rank as much of both.
TEST(Plan, dealt_anew_balances_what_is_trained_by_itself) {
  for_random_cases([](const Case& given, const Plan&) {
    Case dealt = given;
    dealt.dealt = dealt.seals.size();
    const Plan plan = make(dealt);
    const std::vector<PlanParam> params = dealt.params();
    Case in_turn = undealt(dealt);
    in_turn.seals = {{}};
    std::vector<size_t> numbers;
    for (const bool rests : {false, true}) {
      size_t number = 0;
      for (const Groups& groups : dealt.seals) {
        for (const auto& group : groups) {
          auto& chosen = in_turn.seals[0].emplace_back();
          for (const PlanParam& param : group) {
            if (param.rests == rests) {
              chosen.push_back(param);
              numbers.push_back(number);
            }
            number++;
          }
        }
      }
    }
    const int32_t rule = given.options.rule;
    if (rule == ZERO_PARTITION_GREEDY || rule == ZERO_PARTITION_GREEDY_IN_ORDER) {
      const std::vector<int32_t> owners = naive_greedy(in_turn);
      for (size_t i = 0; i < owners.size(); ++i)
        EXPECT_EQ(plan.owner(static_cast<int64_t>(numbers[i])), owners[i]) << numbers[i];
    }
    if (rule == ZERO_PARTITION_MANUAL) {
      for (size_t i = 0; i < params.size(); ++i)
        EXPECT_EQ(plan.owner(static_cast<int64_t>(i)), params[i].owner);
    }
    if (rule != ZERO_PARTITION_EVEN) return;
    std::map<const Section*, bool> sections;
    for (size_t i = 0; i < params.size(); ++i)
      if (!params[i].rests) sections[&plan.section_of(static_cast<int64_t>(i))] = true;
    std::vector<int64_t> blocks;
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      std::map<int64_t, bool> trained;
      for (const Segment& segment : plan.segments(rank)) {
        if (params[static_cast<size_t>(segment.param)].rests) continue;
        const int64_t begin = plan.layout(segment.param) + segment.first;
        for (int64_t b = begin / kBlock; b * kBlock < begin + segment.count; ++b) trained[b] = true;
      }
      blocks.push_back(static_cast<int64_t>(trained.size()));
    }
    const auto [least, most] = std::minmax_element(blocks.begin(), blocks.end());
    EXPECT_LE(*most - *least, static_cast<int64_t>(sections.size()));
  });
}

std::vector<int32_t> owners_of(const Plan& plan) {
  std::vector<int32_t> owners;
  for (int64_t i = 0; i < plan.params(); ++i) owners.push_back(plan.owner(i));
  return owners;
}

TEST(Plan, greedy_rules_give_the_published_example) {
  const Groups groups = one_group({9, 7, 5, 3, 9, 7, 5, 3});
  EXPECT_EQ(owners_of(make({{2, ZERO_PARTITION_GREEDY_IN_ORDER, 4096}, {groups}})),
            (std::vector<int32_t>{0, 1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(owners_of(make({{2, ZERO_PARTITION_GREEDY, 4096}, {groups}})),
            (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(Plan, greedy_totals_are_even_also_when_a_group_comes_later) {
  for (int32_t world = 1; world <= 8; ++world) {
    std::vector<int64_t> counts;
    for (int32_t i = 0; i < world; ++i) counts.insert(counts.end(), {9, 7, 5, 3});
    const std::vector<int64_t> early(counts.begin(), counts.end() - 1);
    const std::vector<int64_t> late = {3};
    const PlanOptions options{world, ZERO_PARTITION_GREEDY, 4096};
    const Plan at_once = make({options, {one_group(counts)}});
    const Plan two_groups = make({options, {{one_group(early)[0], one_group(late)[0]}}});
    const Plan two_seals = make({options, {one_group(early), one_group(late)}});
    for (int32_t rank = 0; rank < world; ++rank) {
      EXPECT_EQ(at_once.owned_elements(rank), 24) << world;
      EXPECT_EQ(two_groups.owned_elements(rank), 24) << world;
      EXPECT_EQ(two_seals.owned_elements(rank), 24) << world;
    }
  }
}

TEST(Plan, manual_owners_are_as_given) {
  for_random_cases([](const Case& given, const Plan& plan) {
    if (given.options.rule != ZERO_PARTITION_MANUAL) return;
    const std::vector<PlanParam> params = given.params();
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(plan.owner(static_cast<int64_t>(i)), params[i].owner);
    }
  });
}

TEST(Plan, whole_tensor_layout_is_by_owner_each_padded_to_the_longest) {
  Plan plan({3, ZERO_PARTITION_MANUAL, 1 << 20});
  ASSERT_TRUE(add(plan, {{{10, 0, 2}, {40, 1, 0}, {20, 2, 2}, {1, 3, 0}}}).ok());
  // Rank 0: parameter 3 in 16, parameter 1 in 48; rank 2: parameter 2 in 32, parameter 0 in 16.
  EXPECT_EQ(plan.layout_elements(), 3 * 64);
  EXPECT_EQ(plan.layout(3), 0);
  EXPECT_EQ(plan.layout(1), 16);
  EXPECT_EQ(plan.layout(2), 128);
  EXPECT_EQ(plan.layout(0), 128 + 32);
  EXPECT_EQ(share_end(plan, 0), 64);
  EXPECT_EQ(share_end(plan, 1), 0);
  EXPECT_EQ(share_end(plan, 2), 48);
  ASSERT_EQ(plan.transfers(true).size(), 1u);
  EXPECT_EQ(plan.transfers(true)[0].chunk, 64);
  EXPECT_EQ(plan.transfers(false)[0].layout, -1);
}

TEST(Plan, even_buckets_are_full_ones_then_what_is_left_for_all_then_single_blocks) {
  // 2 ranks, buckets of 4 blocks, 11 blocks: two full, one of 2, one of a block for rank 0 alone.
  const Plan plan =
      make({{2, ZERO_PARTITION_EVEN, 4 * (4 * kBlock + 100)}, {one_group({11 * kBlock - 7})}});
  const std::vector<Transfer> transfers = plan.transfers(true);
  ASSERT_EQ(transfers.size(), 4u);
  const int64_t chunks[] = {2 * kBlock, 2 * kBlock, kBlock, kBlock};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(transfers[i].chunk, chunks[i]);
  EXPECT_EQ(plan.layout_elements(), 12 * kBlock);
  EXPECT_EQ(plan.owned_elements(0), 6 * kBlock - 7);
  EXPECT_EQ(plan.owned_elements(1), 5 * kBlock);
  EXPECT_EQ(share_end(plan, 1), 5 * kBlock);
}

TEST(Plan, dtypes_of_a_seal_travel_apart) {
  for_random_cases([](const Case& given, const Plan& plan) {
    const std::vector<PlanParam> params = given.params();
    for (size_t i = 0; i < params.size(); ++i) {
      const Section& section = plan.section_of(static_cast<int64_t>(i));
      EXPECT_EQ(section.dtype, params[i].dtype);
      EXPECT_EQ(section.grad_dtype, params[i].grad_dtype);
      const int64_t begin = plan.layout(static_cast<int64_t>(i));
      EXPECT_GE(begin, section.layout);
      EXPECT_LE(begin + params[i].count, section.layout + section.layout_elements);
    }
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      for (const Segment& segment : plan.segments(rank)) {
        EXPECT_EQ(&plan.sections()[static_cast<size_t>(segment.section)],
                  &plan.section_of(segment.param));
      }
    }
  });
}

TEST(Plan, places_in_bytes_are_apart_aligned_and_inside) {
  for_random_cases([](const Case& given, const Plan& plan) {
    std::vector<std::pair<int64_t, int64_t>> data, grads;
    const std::vector<PlanParam> params = given.params();
    for (size_t i = 0; i < params.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const Section& section = plan.section_of(index);
      const int64_t padded = (params[i].count + kAlignment - 1) / kAlignment * kAlignment;
      const auto bytes = [&](DType dtype) { return padded * static_cast<int64_t>(size_of(dtype)); };
      const int64_t at = section.data_at(plan.layout(index));
      const int64_t grad_at = section.grad_at(plan.layout(index));
      EXPECT_EQ(section.data_bytes % 64, 0);
      EXPECT_EQ(section.grad_bytes % 64, 0);
      data.emplace_back(at, at + bytes(section.dtype));
      grads.emplace_back(grad_at, grad_at + bytes(section.grad_dtype));
    }
    expect_disjoint(data, plan.data_bytes());
    expect_disjoint(grads, plan.grad_bytes());
    for (int32_t rank = 0; rank < given.options.world; ++rank) {
      std::vector<std::pair<int64_t, int64_t>> owned, sums;
      for (const Segment& segment : plan.segments(rank)) {
        const Section& section = plan.section_of(segment.param);
        owned.emplace_back(section.owned_at(segment.share),
                           section.owned_at(segment.share + segment.count));
        sums.emplace_back(section.sum_at(segment.share),
                          section.sum_at(segment.share + segment.count));
      }
      expect_disjoint(owned, plan.owned_bytes());
      expect_disjoint(sums, plan.sum_bytes());
    }
  });
}

TEST(Plan, one_rank_owns_each_parameter_as_one_segment) {
  const Plan plan = make({{1, ZERO_PARTITION_EVEN, 4096}, {one_group({50'000, 3, 9000})}});
  EXPECT_EQ(plan.segments(0).size(), 3u);
  EXPECT_EQ(owners_of(plan), (std::vector<int32_t>{0, 0, 0}));
}

TEST(Plan, fewer_elements_than_ranks_leave_ranks_without_any) {
  for (const int32_t rule : kRules) {
    const Plan plan = make({{10'000, rule, 8'388'608}, {one_group({1, 0, 2})}});
    EXPECT_EQ(plan.segments(9'999).size(), 0u);
    EXPECT_EQ(share_end(plan, 9'999), 0);
    int64_t owned = 0;
    for (int32_t rank = 0; rank < 10'000; ++rank) owned += plan.owned_elements(rank);
    EXPECT_EQ(owned, 3);
  }
}

TEST(Plan, parameters_without_elements_have_one_owner_and_need_no_memory) {
  for (const int32_t rule : kRules) {
    Plan plan = make({{4, rule, 4096}, {one_group({0, 0})}});
    EXPECT_EQ(plan.layout_elements(), 0);
    EXPECT_TRUE(plan.transfers(true).empty());
    EXPECT_TRUE(plan.transfers(false).empty());
    EXPECT_EQ(owners_of(plan), (std::vector<int32_t>{0, 0}));
    // Behind a region that ends with its last block, too.
    ASSERT_TRUE(add(plan, {{{0, 0, 3}, {4 * kBlock, 1, 3}}}).ok());
    // EVEN: the last block's owner; greedy: the least loaded, after the larger one or before it.
    const int32_t owner = rule == ZERO_PARTITION_GREEDY            ? 1
                          : rule == ZERO_PARTITION_GREEDY_IN_ORDER ? 0
                                                                   : 3;
    EXPECT_EQ(plan.owner(2), owner);
  }
}

TEST(Plan, an_empty_plan_answers) {
  const Plan plan({5, ZERO_PARTITION_EVEN, 4096});
  EXPECT_EQ(plan.params(), 0);
  EXPECT_EQ(plan.layout_elements(), 0);
  EXPECT_EQ(share_end(plan, 4), 0);
  EXPECT_EQ(plan.owned_elements(4), 0);
  EXPECT_TRUE(plan.segments(4).empty());
}

void expect_refused(Plan& plan, const Groups& groups, const std::string& words) {
  const int64_t params = plan.params();
  const int64_t layout = plan.layout_elements();
  const Status status = add(plan, groups);
  EXPECT_EQ(status.code(), ZERO_ERR_ARGUMENT);
  EXPECT_NE(status.text().find(words), std::string::npos) << status.text();
  EXPECT_EQ(plan.params(), params);
  EXPECT_EQ(plan.layout_elements(), layout);
}

TEST(Plan, totals_that_overflow_are_refused_and_nothing_is_added) {
  for (const int32_t rule : kRules) {
    Plan plan = make({{4, rule, 4096}, {one_group({100})}});
    expect_refused(plan, one_group({5, INT64_MAX}), "parameter 2 of 9223372036854775807 elements");
    expect_refused(plan, one_group({kMaxElements / 2, kMaxElements / 2, kMaxElements / 2}),
                   "limit");
    expect_refused(plan, one_group({kMaxElements - 10}), "limit");
    expect_refused(plan, one_group({-1}), "parameter 1: negative count -1");
  }
  // A layout can pass the limit where the parameters do not.
  Plan manual({1000, ZERO_PARTITION_MANUAL, 4096});
  expect_refused(manual, one_group({kMaxElements / 500}), "laid out for 1000 ranks");
  EXPECT_EQ(manual.owned_elements(0), 0);
}

TEST(Plan, the_largest_totals_are_planned) {
  const Plan plan = make({{3, ZERO_PARTITION_EVEN, INT64_MAX}, {one_group({kMaxElements / 2})}});
  EXPECT_EQ(plan.owned_elements(0) + plan.owned_elements(1) + plan.owned_elements(2),
            kMaxElements / 2);
  EXPECT_EQ(plan.segments(2).size(), 1u);
}

TEST(Plan, owners_that_are_no_rank_are_refused) {
  Plan plan({2, ZERO_PARTITION_MANUAL, 4096});
  expect_refused(plan, {{{5, 0, 0}, {5, 1, 2}}}, "parameter 1: owner 2 is no rank of 0 to 1");
  expect_refused(plan, {{{5, 0, -1}}}, "owner -1");
}

}  // namespace
}  // namespace zero
