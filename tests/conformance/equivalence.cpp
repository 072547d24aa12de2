// SPDX-License-Identifier: Apache-2.0
#include "equivalence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace zero::test {
namespace {

/// 'E' and an error, or 'P', the parameters and the norms.
std::string run_rank(const Training& training, zero_comm* comm) {
  if (comm == nullptr) return std::string("E") + zero_last_error();
  std::string error;
  const Outcome outcome = train(training, comm, &error);
  zero_comm_free(comm);
  if (!error.empty()) return "E" + error;
  std::string bytes = "P";
  bytes.append(reinterpret_cast<const char*>(outcome.params.data()), outcome.params.size() * 8);
  bytes.append(reinterpret_cast<const char*>(outcome.norms.data()), outcome.norms.size() * 8);
  return bytes;
}

Rank parse(const Training& training, const std::string& bytes) {
  Rank rank;
  if (bytes.empty() || bytes[0] != 'P') {
    rank.error = bytes.empty() ? "no result" : bytes;
    return rank;
  }
  const size_t norm_bytes = static_cast<size_t>(training.steps) * 8;
  const size_t param_bytes = bytes.size() - 1 - norm_bytes;
  rank.outcome.params.resize(param_bytes / 8);
  std::memcpy(rank.outcome.params.data(), bytes.data() + 1, param_bytes);
  rank.outcome.norms.resize(static_cast<size_t>(training.steps));
  std::memcpy(rank.outcome.norms.data(), bytes.data() + 1 + param_bytes, norm_bytes);
  return rank;
}

/// The reference's NAdam calls pow and its norms are long doubles, whose last bits are its own;
/// only fp64 parameters show them.
double slack_of(const Training& training) {
  const bool has_norms =
      training.optimizer == ZERO_OPTIMIZER_LAMB || training.optimizer == ZERO_OPTIMIZER_LARS;
  return training.optimizer == ZERO_OPTIMIZER_NADAM || has_norms ? 1e-12 : 0;
}

const std::vector<int64_t> kSizes = {1, 0, 7, 1024, 4097, 16, 33, 2048, 1, 5000, 0, 3, 999};

}  // namespace

std::vector<Rank> run(const Training& training, RankKind ranks, CommKind kind) {
  const Meeting meeting(kind, training.world, 60'000);
  std::vector<Rank> out;
  for (const std::string& bytes : run_sound_ranks(ranks, training.world, [&](int rank) {
         return run_rank(training, meeting.join(rank));
       })) {
    out.push_back(parse(training, bytes));
  }
  return out;
}

std::vector<Rank> as_threads(const Training& training) { return run(training, RankKind::threads); }
std::vector<Rank> as_processes(const Training& training) {
  return run(training, RankKind::processes);
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

void expect_equals_reference(const Training& training, const std::vector<Rank>& ranks,
                             const std::string& what) {
  const auto longest = std::max_element(training.epoch.begin(), training.epoch.end());
  const size_t witness = static_cast<size_t>(longest - training.epoch.begin());
  const std::vector<double>& norms = ranks[witness].outcome.norms;
  const Outcome expected = reference(training, norms);
  for (size_t rank = 0; rank < ranks.size(); rank++) {
    const std::string which =
        what + ", rank " + std::to_string(rank) + " of " + std::to_string(training.world);
    ASSERT_EQ(ranks[rank].error, "") << which;
    expect_same_bits(ranks[rank].outcome.params, expected.params, slack_of(training), which);
    expect_same_bits(ranks[rank].outcome.params, ranks[0].outcome.params, 0, which);
    if (!training.asks) continue;
    ASSERT_EQ(ranks[rank].outcome.norms.size(), expected.norms.size()) << which;
    for (size_t s = 0; s < expected.norms.size(); s++) {
      if (joined(training, static_cast<int>(rank), static_cast<int>(s))) continue;
      EXPECT_NEAR(ranks[rank].outcome.norms[s], expected.norms[s],
                  std::fabs(expected.norms[s]) * 1e-12)
          << which;
      EXPECT_EQ(ranks[rank].outcome.norms[s], norms[s]) << which;
    }
  }
}

const std::vector<Optimizer> kOptimizers = {
    {"adamw", ZERO_OPTIMIZER_ADAMW, {"lr"}, {0.01}},
    {"adamw amsgrad maximize",
     ZERO_OPTIMIZER_ADAMW,
     {"amsgrad", "maximize", "weight_decay"},
     {1, 1, 0.1}},
    {"adam", ZERO_OPTIMIZER_ADAM, {"lr", "eps"}, {0.003, 1e-6}},
    {"adam decay amsgrad", ZERO_OPTIMIZER_ADAM, {"weight_decay", "amsgrad"}, {0.05, 1}},
    {"sgd", ZERO_OPTIMIZER_SGD, {"lr"}, {0.1}},
    {"sgd momentum",
     ZERO_OPTIMIZER_SGD,
     {"lr", "momentum", "dampening", "weight_decay"},
     {0.1, 0.9, 0.1, 0.01}},
    {"sgd nesterov maximize",
     ZERO_OPTIMIZER_SGD,
     {"momentum", "nesterov", "maximize"},
     {0.9, 1, 1}},
};

const std::vector<Optimizer> kMoreOptimizers = {
    {"rmsprop", ZERO_OPTIMIZER_RMSPROP, {"lr"}, {0.02}},
    {"rmsprop centered",
     ZERO_OPTIMIZER_RMSPROP,
     {"centered", "weight_decay", "maximize", "eps"},
     {1, 0.05, 1, 1e-4}},
    {"rmsprop centered momentum",
     ZERO_OPTIMIZER_RMSPROP,
     {"centered", "momentum", "alpha", "eps"},
     {1, 0.9, 0.9, 1e-4}},
    {"adagrad", ZERO_OPTIMIZER_ADAGRAD, {"lr", "lr_decay"}, {0.1, 0.01}},
    {"adagrad initial decay",
     ZERO_OPTIMIZER_ADAGRAD,
     {"initial_accumulator_value", "weight_decay"},
     {0.2, 0.1}},
    {"lion", ZERO_OPTIMIZER_LION, {"lr"}, {0.003}},
    {"lion decay maximize",
     ZERO_OPTIMIZER_LION,
     {"weight_decay", "maximize", "lr"},
     {0.1, 1, 0.01}},
    {"adamax", ZERO_OPTIMIZER_ADAMAX, {"weight_decay"}, {0.1}},
    {"adadelta", ZERO_OPTIMIZER_ADADELTA, {"rho", "weight_decay"}, {0.8, 0.01}},
    {"radam", ZERO_OPTIMIZER_RADAM, {"weight_decay"}, {0.1}},
    {"radam decoupled",
     ZERO_OPTIMIZER_RADAM,
     {"weight_decay", "decoupled_weight_decay", "beta2"},
     {0.1, 1, 0.9}},
    {"nadam", ZERO_OPTIMIZER_NADAM, {"weight_decay", "momentum_decay"}, {0.1, 0.2}},
    {"nadam decoupled", ZERO_OPTIMIZER_NADAM, {"weight_decay", "decoupled_weight_decay"}, {0.1, 1}},
    {"rprop", ZERO_OPTIMIZER_RPROP, {"lr"}, {0.003}},
    {"rprop narrow",
     ZERO_OPTIMIZER_RPROP,
     {"step_size_max", "eta_plus", "maximize"},
     {0.02, 1.5, 1}},
    {"lamb", ZERO_OPTIMIZER_LAMB, {"lr"}, {0.01}},
    {"lamb always maximize",
     ZERO_OPTIMIZER_LAMB,
     {"weight_decay", "always_adapt", "maximize", "beta1"},
     {0, 1, 1, 0.8}},
    {"lars",
     ZERO_OPTIMIZER_LARS,
     {"weight_decay", "momentum", "trust_coefficient"},
     {0.1, 0.9, 0.1}},
    {"lars nesterov maximize",
     ZERO_OPTIMIZER_LARS,
     {"momentum", "nesterov", "always_adapt", "maximize", "lr"},
     {0.9, 1, 1, 1, 0.5}},
    {"adan", ZERO_OPTIMIZER_ADAN, {"lr"}, {0.01}},
    {"adan decay maximize",
     ZERO_OPTIMIZER_ADAN,
     {"weight_decay", "maximize", "beta2", "eps"},
     {0.1, 1, 0.5, 1e-4}},
    {"ademamix", ZERO_OPTIMIZER_ADEMAMIX, {"beta3", "alpha_warmup"}, {0.99, 3}},
    {"ademamix decay maximize", ZERO_OPTIMIZER_ADEMAMIX, {"weight_decay", "maximize"}, {0.1, 1}},
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

int max_world() { return nightly_run() ? 8 : 4; }

std::vector<CommKind> comms_of(size_t turn) {
  if (!nightly_run()) return {kCommKinds[turn % std::size(kCommKinds)]};
  return {std::begin(kCommKinds), std::end(kCommKinds)};
}

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
