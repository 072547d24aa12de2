// SPDX-License-Identifier: Apache-2.0
// Runs of N training ranks, and their comparison with one process, for the equivalence tests.
#pragma once

#include <string>
#include <vector>

#include "support/comms.h"
#include "training.h"

namespace zero::test {

/// Returns the outcome of each rank.
std::vector<Outcome> run(const Training& training, const Meeting& meeting,
                         RankKind ranks = RankKind::threads);
std::vector<Outcome> run(const Training& training, CommKind kind = CommKind::local);
std::vector<Outcome> as_processes(const Training& training);

/// Converts an outcome to the string that a process sends.
std::string packed(const Outcome& outcome);
Outcome unpacked(const std::string& said);

/// Compares bitwise, on every rank. -0 and +0 differ, and NaN never occurs.
void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b, double slack,
                      const std::string& what);
void expect_equals_reference(const Training& training, const std::vector<Outcome>& ranks,
                             const std::string& what);
/// Runs ranks as threads of a local comm.
void expect_equals_reference(const Training& training, const std::string& what);

struct Optimizer {
  const char* name;
  int32_t number;
  Settings settings;
};

extern const std::vector<Optimizer> kOptimizers;

struct Kind {
  const char* name;
  std::vector<Dtypes> dtypes;
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t share_dtype = 0;
};

extern const std::vector<Kind> kKinds;
void set_kind(Training& training, const Kind& kind);

constexpr const char* kPartitionNames[] = {"even", "greedy", "in order", "manual"};
constexpr const char* kWheres[] = {"arenas", "per-rank arenas", "foreign", "mixed"};

/// Returns a training with thirteen tensors, some empty, some longer than a block.
Training base(int world);

int max_world();
/// Returns true if the steps depend on norms of whole tensors.
bool takes_whole_tensors(int32_t optimizer);

}  // namespace zero::test
