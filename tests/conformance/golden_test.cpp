// SPDX-License-Identifier: Apache-2.0
// Training gives bitwise the same results as before. tests/data/golden.txt has hashes of
// parameters, state and norms. This program wrote them with the library of commit 1f0e063
// (ZERO_GOLDEN_WRITE=FILE writes them). They change only if docs/bits.md changes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "equivalence.h"
#include "support/pairwise.h"

namespace zero::test {
namespace {

// ---- The axes. A combination has one value of each axis.

/// The rules that existed when the data was written.
const std::vector<Optimizer>& rules() {
  static const std::vector<Optimizer> all = [] {
    const std::set<std::string> later = {"rprop narrow",           "lamb always maximize",
                                         "lars nesterov maximize", "adan",
                                         "adan decay maximize",    "ademamix",
                                         "ademamix decay maximize"};
    std::vector<Optimizer> some;
    for (const Optimizer& one : kOptimizers)
      if (later.count(one.name) == 0) some.push_back(one);
    return some;
  }();
  return all;
}

struct Feature {
  const char* name;
  bool of_devices;
  std::function<void(Training&)> set;
};

void join(Training& run, int32_t uneven) {
  run.uneven_inputs = uneven;
  for (int rank = 0; rank < run.world; rank++)
    run.epoch.push_back(rank % 2 == 0 ? 5 : 2 + rank % 3);
}

const std::vector<Feature> kFeatures = {
    {"plain", true, [](Training&) {}},
    {"clip by 2", true, [](Training& run) { run.max_grad_norm = 0.5; }},
    {"clip by largest", true,
     [](Training& run) { run.max_grad_norm = 0.05, run.norm_type = INFINITY; }},
    {"clip by 1", true, [](Training& run) { run.max_grad_norm = 20, run.norm_type = 1; }},
    {"clip by hand", true,
     [](Training& run) { run.max_grad_norm = 0.5, run.explicit_clip = true; }},
    {"reduce by hand", true,
     [](Training& run) { run.max_grad_norm = 0.5, run.explicit_reduce = true; }},
    {"clip by value", true, [](Training& run) { run.clip_value = 0.05, run.max_grad_norm = 0.5; }},
    {"loss scale", true, [](Training& run) { run.loss_scale = 3, run.max_grad_norm = 0.5; }},
    {"accumulate", true, [](Training& run) { run.micro_batches = 3; }},
    {"missing", true, [](Training& run) { run.missing = true; }},
    {"frozen", true, [](Training& run) { run.toggled = true; }},
    {"reduced already", true, [](Training& run) { run.reduced = true; }},
    {"sum", true, [](Training& run) { run.sum = true; }},
    {"bf16 wire", true, [](Training& run) { run.wire_dtype = ZERO_BFLOAT16; }},
    {"fp16 wire predivided", false,
     [](Training& run) { run.wire_dtype = ZERO_FLOAT16, run.predivide_factor = 2; }},
    {"own settings", true, [](Training& run) { run.own_settings = true; }},
    {"announced", false, [](Training& run) { run.announces = 3; }},
    {"begun", false, [](Training& run) { run.begins = true, run.announces = 3; }},
    {"overlap", false, [](Training& run) { run.overlaps = true; }},
    {"rebalance", false,
     [](Training& run) {
       run.deals.assign({2, 4});
     }},
    {"join world", false, [](Training& run) { join(run, ZERO_UNEVEN_WORLD); }},
    {"join active", false, [](Training& run) { join(run, ZERO_UNEVEN_ACTIVE); }},
    {"threads", false, [](Training& run) { run.threads = 3; }},
};

struct On {
  const char* name;
  CommKind kind;
};
constexpr On kOns[] = {{"host", CommKind::local},
                       {"user comm", CommKind::user},
                       {"device", CommKind::device},
                       {"nccl", CommKind::nccl},
                       {"reaching devices", CommKind::gates},
                       {"staged devices", CommKind::staged}};

enum Axis { rule, feature, kind, on, world, where, partition };

bool takes_whole_tensors(const Combination& one) {
  return test::takes_whole_tensors(rules()[one[rule]].number);
}

CommKind place_of(const Combination& one) { return kOns[one[on]].kind; }

bool is_legal(const Combination& one) {
  const CommKind place = place_of(one);
  const Feature& what = kFeatures[one[feature]];
  const size_t ranks = one[world] + 1;
  const std::string name = what.name;
  if (name == "begun" && takes_whole_tensors(one)) return false;
  if (name.substr(0, 4) == "join" && ranks == 1) return false;
  if (place == CommKind::local) return true;
  if (place == CommKind::user) return ranks > 1;
  if (takes_whole_tensors(one) || !what.of_devices) return false;
  if (place == CommKind::device) return ranks == 1;
  if (ranks != 2 && ranks != 3) return false;
  const auto lies = static_cast<Where>(one[where]);
  return place != CommKind::nccl || lies == Where::per_rank_arenas || lies == Where::foreign;
}

std::string name_of(const Combination& one) {
  std::string name = std::string(rules()[one[rule]].name) + ", " + kFeatures[one[feature]].name +
                     ", " + kKinds[one[kind]].name + ", " + kOns[one[on]].name + ", " +
                     std::to_string(one[world] + 1) + ", " + kWheres[one[where]] + ", " +
                     kPartitionNames[one[partition]];
  return name;
}

const std::vector<Combination>& combinations() {
  static const std::vector<Combination> all =
      all_pairs({rules().size(), kFeatures.size(), kKinds.size(), std::size(kOns), 5, 4, 4},
                is_legal, 200);  // the draws when the data was written
  return all;
}

// ---- One run

Training training_of(const Combination& one) {
  Training run = base(static_cast<int>(one[world]) + 1);
  const Optimizer& optimizer = rules()[one[rule]];
  run.optimizer = optimizer.number;
  run.settings = optimizer.settings;
  run.sizes = {1, 0, 7, 1024, 1300, 16, 33, 600, 1, 17, 3};
  run.steps = 6;
  run.where = static_cast<Where>(one[where]);
  run.partition = static_cast<int32_t>(one[partition]);
  set_kind(run, kKinds[one[kind]]);
  kFeatures[one[feature]].set(run);
  run.padded =
      one[world] % 2 == 1 && run.where != Where::foreign && place_of(one) == CommKind::local;
  run.others_sum = place_of(one) == CommKind::nccl;
  run.keeps_state = true;
  return run;
}

/// Removes the state, because the reference has none to read.
std::vector<Outcome> without_state(std::vector<Outcome> ranks, const Training& run) {
  const auto elements = std::accumulate(run.sizes.begin(), run.sizes.end(), int64_t{0});
  for (Outcome& rank : ranks) rank.params.resize(static_cast<size_t>(elements));
  return ranks;
}

std::string hash_of(const Outcome& outcome) {
  std::vector<double> all = outcome.params;
  for (const double norm : outcome.norms) all.push_back(norm);
  return hex(hash64(std::as_bytes(std::span(all))));
}

// ---- The recorded hashes

class Kept : public ::testing::Environment {
 public:
  static Kept& only() {
    static Kept* const kept = new Kept;  // gtest deletes it
    return *kept;
  }
  void SetUp() override {
    std::ifstream file(std::filesystem::path(__FILE__).parent_path().parent_path() / "data" /
                       "golden.txt");
    std::string line;
    while (std::getline(file, line)) {
      if (!line.empty() && line[0] != '#') hashes[line.substr(17)] = line.substr(0, 16);
    }
  }
  void TearDown() override {
    if (const char* const to = std::getenv("ZERO_GOLDEN_WRITE")) {
      std::ofstream file(to);
      file << "# Made by golden_test with ZERO_GOLDEN_WRITE: a hash of what training leaves, and "
              "how it trained.\n";
      for (const auto& [name, hash] : made) file << hash << ' ' << name << '\n';
    }
  }
  std::map<std::string, std::string> hashes, made;
};

const auto* const kRegistered = ::testing::AddGlobalTestEnvironment(&Kept::only());

class Golden : public ::testing::TestWithParam<size_t> {};

TEST_P(Golden, training_equals_one_process_and_keeps_its_bits) {
  const Combination& one = combinations()[GetParam()];
  const std::string name = name_of(one);
  const Training run = training_of(one);
  const std::vector<Outcome> ranks = test::run(run, Meeting(place_of(one), run.world, {.seed = 5}));
  ASSERT_TRUE(!ranks[0].params.empty()) << name << ranks[0].error;
  expect_equals_reference(run, without_state(ranks, run), name);
  const std::string hash = hash_of(ranks[0]);
  Kept::only().made[name] = hash;
  if (std::getenv("ZERO_GOLDEN_WRITE") == nullptr) {
    EXPECT_EQ(hash, Kept::only().hashes[name]) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(, Golden, ::testing::Range(size_t{0}, combinations().size()));

TEST(GoldenData, has_a_line_for_each_configuration_and_no_other) {
  if (std::getenv("ZERO_GOLDEN_WRITE") != nullptr) GTEST_SKIP() << "it is being written";
  std::set<std::string> names, kept;
  for (const Combination& one : combinations()) names.insert(name_of(one));
  for (const auto& [name, hash] : Kept::only().hashes) kept.insert(name);
  EXPECT_GE(names.size(), 300u);
  EXPECT_EQ(names, kept);
}

}  // namespace
}  // namespace zero::test
