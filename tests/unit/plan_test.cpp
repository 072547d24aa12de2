// SPDX-License-Identifier: Apache-2.0
// Properties of the plan for random sizes, worlds, rules and seals, and its rules against naive
// models.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "support/pairwise.h"
#include "support/statuses.h"

namespace zero {
namespace {

constexpr int32_t kRules[] = {ZERO_PARTITION_EVEN, ZERO_PARTITION_GREEDY,
                              ZERO_PARTITION_GREEDY_IN_ORDER, ZERO_PARTITION_MANUAL};
constexpr const char* kRuleNames[] = {"even", "greedy", "greedy_in_order", "manual"};

using Kind = std::pair<DType, DType>;
constexpr Kind kKinds[] = {{DType::f32, DType::f32},
                           {DType::bf16, DType::bf16},
                           {DType::bf16, DType::f32},
                           {DType::f16, DType::bf16},
                           {DType::f64, DType::f64}};

using Groups = std::vector<std::vector<PlanParam>>;

/// The arguments of Plan: parameters, and the ends of their groups.
struct Flat {
  std::vector<PlanParam> params;
  std::vector<int64_t> ends;

  Flat& add(const Groups& groups) {
    for (const auto& group : groups) {
      params.insert(params.end(), group.begin(), group.end());
      ends.push_back(static_cast<int64_t>(params.size()));
    }
    return *this;
  }
};

struct Case {
  PlanOptions options;
  std::vector<Groups> seals;
  size_t dealt = 0;  // after this many seals, everything sealed is dealt again; 0: never

  Flat flat(size_t sealed) const {
    Flat all;
    for (size_t s = 0; s < sealed; ++s) all.add(seals[s]);
    return all;
  }
};

/// `rests` matters only if everything is dealt again.
Status add(Plan& plan, const Groups& groups) {
  Flat added = Flat().add(groups);
  for (PlanParam& param : added.params) param.rests = false;
  return plan.add(added.params, added.ends);
}

Plan anew(const Plan& plan, const Case& given, size_t sealed) {
  const Flat all = given.flat(sealed);
  return plan.anew(all.params, all.ends).value();
}

Plan make(const Case& given) {
  Plan plan(given.options);
  for (size_t s = 0; s < given.seals.size(); ++s) {
    test::expect_ok(add(plan, given.seals[s]));
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

// ---- Random cases

/// The parameters of a random case.
struct Shape {
  uint64_t seed;
  int32_t rule, world;
  int64_t bucket_bytes;
  bool one_dtype;
  size_t seals, dealt;  // `dealt` as in Case
  size_t resting;       // of what is dealt again, one parameter in this many rests; 0: none
};

/// Returns shapes that contain all pairs of values twice.
std::vector<Shape> all_shapes() {
  constexpr int32_t kWorlds[] = {1, 2, 3, 4, 5, 7, 8, 16, 61};
  constexpr int64_t kBuckets[] = {1, 1024, 5000, 20'000, 64 * 1024, 8'388'608};
  const auto pairs =
      test::all_pairs({4, std::size(kWorlds), std::size(kBuckets), 2, 4, 5, 4},
                      [](const test::Combination& one) { return one[5] <= one[4] + 1; });
  std::vector<Shape> shapes;
  while (shapes.size() < 2 * pairs.size()) {
    for (const test::Combination& one : pairs)
      shapes.push_back({shapes.size() + 1, kRules[one[0]], kWorlds[one[1]], 4 * kBuckets[one[2]],
                        one[3] == 1, one[4] + 1, one[5], one[6] == 0 ? 0 : one[6] + 1});
  }
  return shapes;
}

std::vector<Shape> even_shapes() {
  std::vector<Shape> shapes = all_shapes();
  std::erase_if(shapes, [](const Shape& shape) { return shape.rule != ZERO_PARTITION_EVEN; });
  return shapes;
}

std::string name_of(const testing::TestParamInfo<Shape>& made) {
  const Shape& shape = made.param;
  return text(kRuleNames[shape.rule], "_for_", shape.world, "_in_", shape.bucket_bytes, "_bytes_",
              shape.one_dtype ? "of_one_dtype_" : "", shape.seals, "_seals_dealt_after_",
              shape.dealt, "_seed_", shape.seed);
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit));
  }
  int64_t count() {
    switch (below(8)) {
      case 0:
        return below(3);  // no, one or two elements
      case 1:
        return 16 * below(200);
      case 2:
        return kBlock * below(12);
      case 3:
        return below(120'000);
      default:
        return below(3'000);
    }
  }

 private:
  std::mt19937_64 engine_;
};

Case random_case(const Shape& shape) {
  Random random(shape.seed);
  Case made{{shape.world, shape.rule, shape.bucket_bytes}, {}, shape.dealt};
  int64_t order = 0;
  for (size_t s = 0; s < shape.seals; ++s) {
    Groups& groups = made.seals.emplace_back(static_cast<size_t>(1 + random.below(3)));
    for (auto& group : groups) {
      for (int64_t params = random.below(14); params > 0; --params) {
        const Kind kind = kKinds[shape.one_dtype ? 0 : random.below(std::size(kKinds))];
        PlanParam& param = group.emplace_back();
        param.count = random.count();
        param.order = random.below(3) == 0 ? random.below(10) : order++;
        param.owner = static_cast<int32_t>(random.below(shape.world));
        param.dtype = kind.first;
        param.grad_dtype = kind.second;
        param.rests = shape.resting > 0 && random.below(int64_t(shape.resting)) == 0;
      }
    }
  }
  return made;
}

/// Returns the end of what `rank` owns in the last section in which it owns something.
int64_t share_end(const Plan& plan, int32_t rank) {
  int64_t end = 0;
  for (size_t s = 0; s < plan.sections().size(); ++s) {
    const int64_t elements = plan.share_elements(s, rank);
    if (elements > 0) end = plan.sections()[s].share + elements;
  }
  return end;
}

int64_t padded(int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

/// Checks that intervals [begin, end) do not overlap, and lie within [0, size).
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

/// Returns the blocks of a segment whose parameter begins at `base`.
std::vector<int64_t> blocks_at(int64_t base, const Segment& segment) {
  std::vector<int64_t> blocks;
  const int64_t begin = base + segment.first;
  for (int64_t b = begin / kBlock; b * kBlock < begin + segment.count; ++b) blocks.push_back(b);
  return blocks;
}

/// Returns how many blocks of the layout contain a part of those segments of `rank` that count.
template <class Counts>
int64_t blocks_of(const Plan& plan, int32_t rank, const Counts& counts) {
  std::set<int64_t> all;
  for (const Segment& segment : plan.segments(rank)) {
    const std::vector<int64_t> blocks = blocks_at(plan.layout(segment.param), segment);
    if (counts(segment)) all.insert(blocks.begin(), blocks.end());
  }
  return static_cast<int64_t>(all.size());
}

class AnyPlan : public testing::TestWithParam<Shape> {
 protected:
  bool is_greedy() const {
    return rule_ == ZERO_PARTITION_GREEDY || rule_ == ZERO_PARTITION_GREEDY_IN_ORDER;
  }
  const PlanParam& param(int64_t i) const { return params_[static_cast<size_t>(i)]; }
  /// Returns all segments with their owners.
  std::vector<std::pair<int32_t, Segment>> all_segments() const {
    std::vector<std::pair<int32_t, Segment>> all;
    for (int32_t rank = 0; rank < world_; ++rank)
      for (const Segment& segment : plan_.segments(rank)) all.emplace_back(rank, segment);
    return all;
  }
  void expect_transfers_carry_everything(bool in_place) const;

  const Case given_ = random_case(GetParam());
  const Plan plan_ = make(given_);
  const std::vector<PlanParam> params_ = given_.flat(given_.seals.size()).params;
  const int32_t world_ = given_.options.world, rule_ = given_.options.rule;
};
class AnyEvenPlan : public AnyPlan {};

INSTANTIATE_TEST_SUITE_P(, AnyPlan, testing::ValuesIn(all_shapes()), name_of);
INSTANTIATE_TEST_SUITE_P(, AnyEvenPlan, testing::ValuesIn(even_shapes()), name_of);

TEST_P(AnyPlan, shards_cover_every_element_once) {
  ASSERT_EQ(plan_.params(), static_cast<int64_t>(params_.size()));
  std::vector<std::vector<int>> owners(params_.size());
  for (size_t i = 0; i < params_.size(); ++i)
    owners[i].assign(static_cast<size_t>(params_[i].count), -1);
  std::vector<int64_t> owned(static_cast<size_t>(world_));
  for (const auto& [rank, segment] : all_segments()) {
    ASSERT_GT(segment.count, 0);
    owned[static_cast<size_t>(rank)] += segment.count;
    auto& elements = owners[static_cast<size_t>(segment.param)];
    ASSERT_LE(segment.first + segment.count, static_cast<int64_t>(elements.size()));
    for (int64_t e = segment.first; e < segment.first + segment.count; ++e) {
      ASSERT_EQ(elements[static_cast<size_t>(e)], -1);
      elements[static_cast<size_t>(e)] = rank;
    }
  }
  for (int32_t rank = 0; rank < world_; ++rank)
    EXPECT_EQ(owned[static_cast<size_t>(rank)], plan_.owned_elements(rank));
  for (size_t i = 0; i < params_.size(); ++i) {
    const auto& elements = owners[i];
    EXPECT_EQ(std::count(elements.begin(), elements.end(), -1), 0);
    const int32_t owner = plan_.owner(static_cast<int64_t>(i));
    if (elements.empty()) {
      EXPECT_GE(owner, 0);
      EXPECT_LT(owner, world_);
      continue;
    }
    const bool whole = std::count(elements.begin(), elements.end(), elements[0]) ==
                       static_cast<int64_t>(elements.size());
    EXPECT_EQ(owner, whole ? elements[0] : ZERO_OWNER_SPLIT);
  }
}

TEST_P(AnyPlan, the_segments_of_a_parameter_are_those_of_its_owners) {
  using Row = std::tuple<int64_t, int64_t, int64_t, int64_t, int32_t, int32_t>;
  const auto row = [](int32_t owner, const Segment& s) {
    return Row{s.param, s.first, s.count, s.share, s.section, owner};
  };
  std::vector<Row> by_rank, by_param;
  for (const auto& [owner, segment] : all_segments()) by_rank.push_back(row(owner, segment));
  for (int64_t param = 0; param < plan_.params(); ++param)
    for (const auto& [owner, segment] : plan_.segments_of(param))
      by_param.push_back(row(owner, segment));
  std::sort(by_rank.begin(), by_rank.end());
  EXPECT_EQ(by_param, by_rank);
}

TEST_P(AnyPlan, share_positions_are_aligned_rise_and_fit) {
  for (int32_t rank = 0; rank < world_; ++rank) {
    int64_t end = 0;
    for (const Segment& segment : plan_.segments(rank)) {
      EXPECT_GE(segment.share, end);
      // State has the same alignment as the parameter's memory.
      EXPECT_EQ((segment.share - segment.first) % kAlignment, 0);
      end = segment.share + segment.count;
    }
    // As small as possible, up to alignment. After a new deal there may be a gap in its last block.
    EXPECT_GE(share_end(plan_, rank), padded(end));
    EXPECT_LE(share_end(plan_, rank), padded(end) + (given_.dealt > 0 ? kBlock - kAlignment : 0));
  }
}

TEST_P(AnyPlan, layout_positions_are_aligned_apart_and_fit) {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  for (int64_t i = 0; i < plan_.params(); ++i) {
    EXPECT_EQ(plan_.layout(i) % kAlignment, 0);
    // The padding counts, because ZERO_PARAM_PADDED lets it be written.
    intervals.emplace_back(plan_.layout(i), plan_.layout(i) + padded(param(i).count));
  }
  expect_disjoint(intervals, plan_.end().layout);
}

/// Follows every element from the layout through the transfers into its owner's share.
void AnyPlan::expect_transfers_carry_everything(bool in_place) const {
  std::map<int64_t, Transfer> by_share;
  int64_t carried_end = 0;
  int64_t layout_end = 0;
  for (const Transfer& transfer : plan_.transfers(in_place)) {
    EXPECT_GT(transfer.chunk, 0);
    EXPECT_EQ(transfer.share, carried_end) << "in order of travel, without gaps";
    carried_end += transfer.chunk;
    by_share[transfer.share] = transfer;
    if (in_place) {
      EXPECT_EQ(transfer.layout, layout_end);
    }
    if (transfer.layout >= 0) layout_end = transfer.layout + transfer.chunk * world_;
  }
  if (in_place) {
    EXPECT_EQ(layout_end, plan_.end().layout);
  }

  for (int32_t rank = 0; rank < world_; ++rank) {
    EXPECT_LE(share_end(plan_, rank), carried_end);
    int64_t carried = 0;
    for (const auto& [share, transfer] : by_share) {
      for (const Segment& part : Plan::within(plan_.segments(rank), share, transfer.chunk)) {
        carried += part.count;
        EXPECT_LT(rank, transfer.owners);
        if (transfer.layout < 0) continue;
        EXPECT_EQ(plan_.layout(part.param) + part.first,
                  transfer.layout + rank * transfer.chunk + part.share - share);
      }
    }
    EXPECT_EQ(carried, plan_.owned_elements(rank));
  }
}

TEST_P(AnyPlan, transfers_in_place_match_layout_and_share) {
  expect_transfers_carry_everything(true);
}

TEST_P(AnyPlan, packed_transfers_carry_everything_in_bounded_pieces) {
  expect_transfers_carry_everything(false);
  for (const Transfer& transfer : plan_.transfers(false)) {
    const Section& section = plan_.sections()[static_cast<size_t>(transfer.section)];
    const int64_t elements_of_bucket =
        given_.options.bucket_bytes / static_cast<int64_t>(size_of(section.dtype));
    EXPECT_LE(transfer.chunk, std::max(kBlock, elements_of_bucket / world_));
    EXPECT_EQ(transfer.chunk % kAlignment, 0);
  }
}

TEST(Plan, even_buckets_travel_in_place_even_when_packed) {
  Case given{{3, ZERO_PARTITION_EVEN, 4 * 9000}, {one_group({30'000, 500, 70'000})}};
  const Plan plan = make(given);
  const std::vector<Transfer> packed = plan.transfers(false);
  const std::vector<Transfer> in_place = plan.transfers(true);
  ASSERT_EQ(packed.size(), in_place.size());
  for (size_t i = 0; i < packed.size(); ++i) EXPECT_EQ(packed[i].layout, in_place[i].layout);
}

TEST_P(AnyPlan, grid_depends_on_neither_world_nor_rule_nor_bucket) {
  for (const int32_t rule : kRules) {
    Case other = given_;
    other.options = {1, rule, 4096};
    for (Groups& groups : other.seals) {
      for (auto& group : groups) {
        for (PlanParam& param : group) param.owner = 0;
      }
    }
    const Plan alone = make(other);
    for (int64_t i = 0; i < plan_.params(); ++i) EXPECT_EQ(plan_.grid(i), alone.grid(i));
  }
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

/// With EVEN, a piece of a norm (one parameter's part of one block) has one owner. Before
/// everything is dealt again, so does a whole block.
TEST_P(AnyEvenPlan, blocks_have_one_owner_under_even) {
  std::map<std::pair<int64_t, int64_t>, int32_t> owners;
  for (const auto& [rank, segment] : all_segments()) {
    const int64_t param = given_.dealt > 0 ? segment.param : 0;
    for (const int64_t block : blocks_at(plan_.grid(segment.param), segment)) {
      const auto [known, added] = owners.emplace(std::pair(param, block), rank);
      EXPECT_EQ(known->second, rank) << "block " << block;
    }
  }
}

TEST_P(AnyEvenPlan, even_shares_differ_by_at_most_a_block_a_section) {
  const auto sections = static_cast<int64_t>(plan_.sections().size());
  std::vector<int64_t> blocks;
  for (int32_t rank = 0; rank < world_; ++rank) {
    blocks.push_back(blocks_of(plan_, rank, [](const Segment&) { return true; }));
    EXPECT_LE(share_end(plan_, rank),
              (blocks.back() + std::max<int64_t>(sections - 1, 0)) * kBlock);
  }
  const auto [least, most] = std::minmax_element(blocks.begin(), blocks.end());
  EXPECT_LE(*most - *least, sections);
}

TEST_P(AnyEvenPlan, even_layout_is_padded_by_less_than_a_block_a_rank_and_section) {
  if (given_.dealt > 0) return;
  int64_t elements = 0;
  for (const PlanParam& param : params_) elements += param.count;
  const int64_t slack = static_cast<int64_t>(params_.size()) * kAlignment +
                        static_cast<int64_t>(plan_.sections().size()) * kBlock * world_;
  EXPECT_LE(plan_.end().layout, elements + slack);
}

TEST_P(AnyPlan, earlier_owners_and_places_never_move_on_add) {
  Plan plan(given_.options);
  for (const Groups& groups : given_.seals) {
    const Plan before = plan;
    ASSERT_TRUE(add(plan, groups).ok());
    for (int32_t rank = 0; rank < world_; ++rank) {
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
}

/// The greedy rules as documented: a list of totals, searched from the start for every tensor.
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

TEST_P(AnyPlan, greedy_rules_equal_a_naive_model) {
  if (!is_greedy() || given_.dealt > 0) return;
  const std::vector<int32_t> owners = naive_greedy(given_);
  for (int64_t i = 0; i < plan_.params(); ++i) {
    EXPECT_EQ(plan_.owner(i), owners[static_cast<size_t>(i)]) << "parameter " << i;
  }
}

TEST_P(AnyPlan, dealt_anew_moves_nothing_where_one_seal_is_all_trained) {
  Case one = undealt(given_);
  one.seals.resize(1);
  for (auto& group : one.seals[0]) {
    for (PlanParam& param : group) param.rests = false;
  }
  const Plan plan = make(one);
  const Plan again = anew(plan, one, 1);
  EXPECT_TRUE(again.places_as(plan));
  EXPECT_TRUE(plan.in_place());
  EXPECT_FALSE(again.in_place());
}

/// Parameters keep their distances on the grid up to whole blocks. Trained parameters therefore
/// leave gaps where others rested, and vice versa. A gap is less than a block per parameter, and
/// never more than what was there.
TEST_P(AnyPlan, dealt_anew_keeps_the_grid_and_leaves_small_gaps) {
  if (given_.dealt == 0) return;
  const Plan before = make(undealt(given_));
  for (int64_t i = 0; i < plan_.params(); ++i) EXPECT_EQ(plan_.grid(i), before.grid(i));
  if (rule_ != ZERO_PARTITION_EVEN) return;
  const auto ends = static_cast<int64_t>(plan_.sections().size() + before.sections().size());
  const int64_t gaps = std::min(plan_.params() * kBlock, before.end().layout);
  EXPECT_LE(plan_.end().layout, before.end().layout + gaps + ends * kBlock * world_);
}

/// Resting parameters come after the others. The greedy rules deal them like a group that was added
/// later, and EVEN gives every rank the same amount of both.
TEST_P(AnyPlan, dealt_anew_balances_what_is_trained_by_itself) {
  Case dealt = given_;
  dealt.dealt = dealt.seals.size();
  const Plan plan = make(dealt);
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
  if (is_greedy()) {
    const std::vector<int32_t> owners = naive_greedy(in_turn);
    for (size_t i = 0; i < owners.size(); ++i)
      EXPECT_EQ(plan.owner(static_cast<int64_t>(numbers[i])), owners[i]) << numbers[i];
  }
  if (rule_ == ZERO_PARTITION_MANUAL) {
    for (int64_t i = 0; i < plan.params(); ++i) EXPECT_EQ(plan.owner(i), param(i).owner);
  }
  if (rule_ != ZERO_PARTITION_EVEN) return;
  std::set<const Section*> sections;
  for (int64_t i = 0; i < plan.params(); ++i)
    if (!param(i).rests) sections.insert(&plan.section_of(i));
  std::vector<int64_t> blocks;
  for (int32_t rank = 0; rank < world_; ++rank)
    blocks.push_back(
        blocks_of(plan, rank, [&](const Segment& s) { return !param(s.param).rests; }));
  const auto [least, most] = std::minmax_element(blocks.begin(), blocks.end());
  EXPECT_LE(*most - *least, static_cast<int64_t>(sections.size()));
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

TEST_P(AnyPlan, manual_owners_are_as_given) {
  if (rule_ != ZERO_PARTITION_MANUAL) return;
  for (int64_t i = 0; i < plan_.params(); ++i) EXPECT_EQ(plan_.owner(i), param(i).owner);
}

TEST(Plan, whole_tensor_layout_is_by_owner_each_padded_to_the_longest) {
  Plan plan({3, ZERO_PARTITION_MANUAL, 1 << 20});
  ASSERT_TRUE(add(plan, {{{10, 0, 2}, {40, 1, 0}, {20, 2, 2}, {1, 3, 0}}}).ok());
  // Rank 0 has parameter 3 in 16 and parameter 1 in 48; rank 2 has parameter 2 in 32 and parameter
  // 0 in 16.
  EXPECT_EQ(plan.end().layout, 3 * 64);
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
  // 2 ranks, buckets of 4 blocks, 11 blocks: two full ones, one of 2 blocks, and one of a block for
  // rank 0.
  const Plan plan =
      make({{2, ZERO_PARTITION_EVEN, 4 * (4 * kBlock + 100)}, {one_group({11 * kBlock - 7})}});
  const std::vector<Transfer> transfers = plan.transfers(true);
  ASSERT_EQ(transfers.size(), 4u);
  const int64_t chunks[] = {2 * kBlock, 2 * kBlock, kBlock, kBlock};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(transfers[i].chunk, chunks[i]);
    EXPECT_EQ(transfers[i].owners, i < 3 ? 2 : 1);
  }
  EXPECT_EQ(plan.end().layout, 12 * kBlock);
  EXPECT_EQ(plan.owned_elements(0), 6 * kBlock - 7);
  EXPECT_EQ(plan.owned_elements(1), 5 * kBlock);
  EXPECT_EQ(share_end(plan, 1), 5 * kBlock);
}

TEST_P(AnyPlan, dtypes_of_a_seal_travel_apart) {
  for (int64_t i = 0; i < plan_.params(); ++i) {
    const Section& section = plan_.section_of(i);
    EXPECT_EQ(section.dtype, param(i).dtype);
    EXPECT_EQ(section.grad_dtype, param(i).grad_dtype);
    EXPECT_GE(plan_.layout(i), section.layout);
    EXPECT_LE(plan_.layout(i) + param(i).count, section.layout + section.layout_elements);
  }
  for (const auto& [rank, segment] : all_segments())
    EXPECT_EQ(&plan_.sections()[static_cast<size_t>(segment.section)],
              &plan_.section_of(segment.param));
}

TEST_P(AnyPlan, places_in_bytes_are_apart_aligned_and_inside) {
  std::vector<std::pair<int64_t, int64_t>> data, grads;
  for (int64_t i = 0; i < plan_.params(); ++i) {
    const Section& section = plan_.section_of(i);
    EXPECT_EQ(section.data_bytes % 64, 0);
    EXPECT_EQ(section.grad_bytes % 64, 0);
    const auto bytes = [&](int64_t begin, DType dtype) {
      return std::pair(begin, begin + padded(param(i).count) * int64_t(size_of(dtype)));
    };
    data.push_back(bytes(section.data_at(plan_.layout(i)), section.dtype));
    grads.push_back(bytes(section.grad_at(plan_.layout(i)), section.grad_dtype));
  }
  expect_disjoint(data, plan_.end().data_bytes);
  expect_disjoint(grads, plan_.end().grad_bytes);
  for (int32_t rank = 0; rank < world_; ++rank) {
    std::vector<std::pair<int64_t, int64_t>> owned, sums;
    for (const Segment& segment : plan_.segments(rank)) {
      const Section& section = plan_.section_of(segment.param);
      owned.emplace_back(section.owned_at(segment.share),
                         section.owned_at(segment.share + segment.count));
      sums.emplace_back(section.sum_at(segment.share),
                        section.sum_at(segment.share + segment.count));
    }
    expect_disjoint(owned, plan_.end().owned_bytes);
    expect_disjoint(sums, plan_.end().sum_bytes);
  }
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
    EXPECT_EQ(plan.end().layout, 0);
    EXPECT_TRUE(plan.transfers(true).empty());
    EXPECT_TRUE(plan.transfers(false).empty());
    EXPECT_EQ(owners_of(plan), (std::vector<int32_t>{0, 0}));
    // The same after a region that ends with its last block.
    ASSERT_TRUE(add(plan, {{{0, 0, 3}, {4 * kBlock, 1, 3}}}).ok());
    // EVEN: the last block's owner. Greedy: the rank with the least, after the larger parameter or
    // before it.
    const int32_t owner = rule == ZERO_PARTITION_GREEDY            ? 1
                          : rule == ZERO_PARTITION_GREEDY_IN_ORDER ? 0
                                                                   : 3;
    EXPECT_EQ(plan.owner(2), owner);
  }
}

void expect_refused(Plan& plan, const Groups& groups, const std::string& words) {
  const int64_t params = plan.params();
  const int64_t layout = plan.end().layout;
  test::expect_failure(add(plan, groups), ZERO_ERR_ARGUMENT, words);
  EXPECT_EQ(plan.params(), params);
  EXPECT_EQ(plan.end().layout, layout);
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
  // A layout can exceed the limit even if the parameters do not.
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
  expect_refused(plan, {{{5, 0, 0}, {5, 1, 2}}}, "parameter 1: owner 2 is not one of ranks 0 to 1");
  expect_refused(plan, {{{5, 0, -1}}}, "owner -1");
}

}  // namespace
}  // namespace zero
