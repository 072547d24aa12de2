// SPDX-License-Identifier: Apache-2.0
// What the tests of equivalence run: N ranks that train, and the comparison with one process.
#pragma once

#include <string>
#include <vector>

#include "support/comms.h"
#include "training.h"

namespace zero::test {

/// What each rank ends with.
std::vector<Outcome> run(const Training& training, const Meeting& meeting,
                         RankKind ranks = RankKind::threads);
std::vector<Outcome> run(const Training& training, CommKind kind = CommKind::local);
std::vector<Outcome> as_processes(const Training& training);

/// An outcome as a process tells it.
std::string packed(const Outcome& outcome);
Outcome unpacked(const std::string& said);

/// Bit for bit, on every rank; -0 and +0 differ, and NaN never appears.
void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b, double slack,
                      const std::string& what);
void expect_equals_reference(const Training& training, const std::vector<Outcome>& ranks,
                             const std::string& what);
/// Of ranks that are threads of a local comm.
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

/// Thirteen tensors, some empty, some longer than a block.
Training base(int world);

int max_world();
/// Whether its steps depend on norms of whole tensors.
bool takes_whole_tensors(int32_t optimizer);

}  // namespace zero::test
