// SPDX-License-Identifier: Apache-2.0
#include "equivalence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "support/nightly.h"

namespace zero::test {
namespace {

/// The reference uses pow for NAdam and long double for norms, so its last bits differ. Only fp64
/// parameters show that.
double slack_of(const Training& training) {
  const auto differs = [](int32_t optimizer) {
    return optimizer == ZERO_OPTIMIZER_NADAM || takes_whole_tensors(optimizer);
  };
  bool any = differs(training.optimizer);
  for (const GroupRule& group : training.more_groups) any = any || differs(group.optimizer);
  return any ? 1e-12 : 0;
}

const std::vector<int64_t> kSizes = {1, 0, 7, 1024, 4097, 16, 33, 2048, 1, 5000, 0, 3, 999};

}  // namespace

std::string packed(const Outcome& outcome) {
  if (!outcome.error.empty()) return "error " + outcome.error;
  std::string out = text("values ", outcome.params.size(), " ");
  for (const std::vector<double>* const values : {&outcome.params, &outcome.norms})
    out.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(double));
  return out;
}

Outcome unpacked(const std::string& said) {
  if (said.rfind("values ", 0) != 0)
    return {.error = said.empty() ? "the process ended early" : said};
  const size_t begin = said.find(' ', 7) + 1;
  std::vector<double> all((said.size() - begin) / sizeof(double));
  std::memcpy(all.data(), said.data() + begin, all.size() * sizeof(double));
  const auto params = all.begin() + std::stol(said.substr(7));
  return {.params = {all.begin(), params}, .norms = {params, all.end()}};
}

std::vector<Outcome> run(const Training& training, const Meeting& meeting, RankKind ranks) {
  std::vector<Outcome> out;
  for (const std::string& said : results_of(
           meeting, [&](zero_comm*comm, int) { return packed(train(training, comm)); }, ranks))
    out.push_back(unpacked(said));
  return out;
}

std::vector<Outcome> run(const Training& training, CommKind kind) {
  return run(training, Meeting(kind, training.world, 60'000));
}

std::vector<Outcome> as_processes(const Training& training) {
  return run(training, Meeting(CommKind::local, training.world, 60'000), RankKind::processes);
}

void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b, double slack,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t at = 0; at < a.size(); at++) {
    if (std::memcmp(&a[at], &b[at], sizeof a[at]) == 0) continue;
    if (std::fabs(a[at] - b[at]) < slack * std::max(std::fabs(b[at]), 1.0)) continue;
    FAIL() << what << ": element " << at << " is " << a[at] << " and " << b[at];
  }
}

void expect_equals_reference(const Training& training, const std::vector<Outcome>& ranks,
                             const std::string& what) {
  const auto longest = std::max_element(training.epoch.begin(), training.epoch.end());
  const size_t witness = static_cast<size_t>(longest - training.epoch.begin());
  const std::vector<double>& norms = ranks[witness].norms;
  const Outcome expected = reference(training, norms);
  for (size_t rank = 0; rank < ranks.size(); rank++) {
    const std::string which =
        what + ", rank " + std::to_string(rank) + " of " + std::to_string(training.world);
    ASSERT_EQ(ranks[rank].error, "") << which;
    expect_same_bits(ranks[rank].params, expected.params, slack_of(training), which);
    expect_same_bits(ranks[rank].params, ranks[0].params, 0, which);
    if (!training.asks) continue;
    ASSERT_EQ(ranks[rank].norms.size(), expected.norms.size()) << which;
    for (size_t s = 0; s < expected.norms.size(); s++) {
      if (joined(training, static_cast<int>(rank), static_cast<int>(s))) continue;
      EXPECT_NEAR(ranks[rank].norms[s], expected.norms[s], std::fabs(expected.norms[s]) * 1e-12)
          << which;
      EXPECT_EQ(ranks[rank].norms[s], norms[s]) << which;
    }
  }
}

void expect_equals_reference(const Training& training, const std::string& what) {
  expect_equals_reference(training, run(training), what);
}

const std::vector<Optimizer> kOptimizers = {
    {"adamw", ZERO_OPTIMIZER_ADAMW, {{"lr", 0.01}}},
    {"adamw amsgrad maximize",
     ZERO_OPTIMIZER_ADAMW,
     {{"amsgrad", 1}, {"maximize", 1}, {"weight_decay", 0.1}}},
    {"adam", ZERO_OPTIMIZER_ADAM, {{"lr", 0.003}, {"eps", 1e-6}}},
    {"adam decay amsgrad", ZERO_OPTIMIZER_ADAM, {{"weight_decay", 0.05}, {"amsgrad", 1}}},
    {"sgd", ZERO_OPTIMIZER_SGD, {{"lr", 0.1}}},
    {"sgd momentum",
     ZERO_OPTIMIZER_SGD,
     {{"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.1}, {"weight_decay", 0.01}}},
    {"sgd nesterov maximize",
     ZERO_OPTIMIZER_SGD,
     {{"momentum", 0.9}, {"nesterov", 1}, {"maximize", 1}}},
    {"rmsprop", ZERO_OPTIMIZER_RMSPROP, {{"lr", 0.02}}},
    {"rmsprop centered",
     ZERO_OPTIMIZER_RMSPROP,
     {{"centered", 1}, {"weight_decay", 0.05}, {"maximize", 1}, {"eps", 1e-4}}},
    {"rmsprop centered momentum",
     ZERO_OPTIMIZER_RMSPROP,
     {{"centered", 1}, {"momentum", 0.9}, {"alpha", 0.9}, {"eps", 1e-4}}},
    {"adagrad", ZERO_OPTIMIZER_ADAGRAD, {{"lr", 0.1}, {"lr_decay", 0.01}}},
    {"adagrad initial decay",
     ZERO_OPTIMIZER_ADAGRAD,
     {{"initial_accumulator_value", 0.2}, {"weight_decay", 0.1}}},
    {"lion", ZERO_OPTIMIZER_LION, {{"lr", 0.003}}},
    {"lion decay maximize",
     ZERO_OPTIMIZER_LION,
     {{"weight_decay", 0.1}, {"maximize", 1}, {"lr", 0.01}}},
    {"adamax", ZERO_OPTIMIZER_ADAMAX, {{"weight_decay", 0.1}}},
    {"adadelta", ZERO_OPTIMIZER_ADADELTA, {{"rho", 0.8}, {"weight_decay", 0.01}}},
    {"radam", ZERO_OPTIMIZER_RADAM, {{"weight_decay", 0.1}}},
    {"radam decoupled",
     ZERO_OPTIMIZER_RADAM,
     {{"weight_decay", 0.1}, {"decoupled_weight_decay", 1}, {"beta2", 0.9}}},
    {"nadam", ZERO_OPTIMIZER_NADAM, {{"weight_decay", 0.1}, {"momentum_decay", 0.2}}},
    {"nadam decoupled",
     ZERO_OPTIMIZER_NADAM,
     {{"weight_decay", 0.1}, {"decoupled_weight_decay", 1}}},
    {"rprop", ZERO_OPTIMIZER_RPROP, {{"lr", 0.003}}},
    {"rprop narrow",
     ZERO_OPTIMIZER_RPROP,
     {{"step_size_max", 0.02}, {"eta_plus", 1.5}, {"maximize", 1}}},
    {"lamb", ZERO_OPTIMIZER_LAMB, {{"lr", 0.01}}},
    {"lamb always maximize",
     ZERO_OPTIMIZER_LAMB,
     {{"weight_decay", 0}, {"always_adapt", 1}, {"maximize", 1}, {"beta1", 0.8}}},
    {"lars",
     ZERO_OPTIMIZER_LARS,
     {{"weight_decay", 0.1}, {"momentum", 0.9}, {"trust_coefficient", 0.1}}},
    {"lars nesterov maximize",
     ZERO_OPTIMIZER_LARS,
     {{"momentum", 0.9}, {"nesterov", 1}, {"always_adapt", 1}, {"maximize", 1}, {"lr", 0.5}}},
    {"adan", ZERO_OPTIMIZER_ADAN, {{"lr", 0.01}}},
    {"adan decay maximize",
     ZERO_OPTIMIZER_ADAN,
     {{"weight_decay", 0.1}, {"maximize", 1}, {"beta2", 0.5}, {"eps", 1e-4}}},
    {"ademamix", ZERO_OPTIMIZER_ADEMAMIX, {{"beta3", 0.99}, {"alpha_warmup", 3}}},
    {"ademamix decay maximize", ZERO_OPTIMIZER_ADEMAMIX, {{"weight_decay", 0.1}, {"maximize", 1}}},
};

Training base(int world) {
  Training training;
  training.world = world;
  training.sizes = kSizes;
  training.seed = static_cast<uint64_t>(world) + 11;
  return training;
}

void set_kind(Training& training, const Kind& kind) {
  training.dtypes = kind.dtypes;
  training.master = kind.master;
  training.share_dtype = kind.share_dtype;
}

bool takes_whole_tensors(int32_t optimizer) {
  return optimizer == ZERO_OPTIMIZER_LAMB || optimizer == ZERO_OPTIMIZER_LARS;
}

int max_world() { return nightly_run() ? 8 : 4; }

const std::vector<Kind> kKinds = {
    {"fp32", {{ZERO_FLOAT32, ZERO_FLOAT32}}},
    {"bf16", {{ZERO_BFLOAT16, ZERO_BFLOAT16}}},
    {"bf16 remainder", {{ZERO_BFLOAT16, ZERO_BFLOAT16}}, ZERO_MASTER_REMAINDER},
    {"fp16", {{ZERO_FLOAT16, ZERO_FLOAT16}}},
    {"fp64", {{ZERO_FLOAT64, ZERO_FLOAT64}}},
    {"fp32 from bf16", {{ZERO_FLOAT32, ZERO_BFLOAT16}}},
    {"bf16 from fp32", {{ZERO_BFLOAT16, ZERO_FLOAT32}}, ZERO_MASTER_REMAINDER},
    {"bf16 alone", {{ZERO_BFLOAT16, ZERO_BFLOAT16}}, ZERO_MASTER_NONE},
    {"fp32 shared as bf16", {{ZERO_FLOAT32, ZERO_FLOAT32}}, ZERO_MASTER_FLOAT32, ZERO_BFLOAT16},
    {"fp32 shared as fp16", {{}, {ZERO_FLOAT16}, {ZERO_FLOAT64}}, ZERO_MASTER_NONE, ZERO_FLOAT16},
    {"all mixed",
     {{ZERO_BFLOAT16, ZERO_BFLOAT16},
      {ZERO_FLOAT32, ZERO_FLOAT32},
      {ZERO_FLOAT16, ZERO_FLOAT32},
      {ZERO_FLOAT64, ZERO_FLOAT16},
      {ZERO_FLOAT32, ZERO_FLOAT64},
      {ZERO_BFLOAT16, ZERO_FLOAT64}}},
};

}  // namespace zero::test
