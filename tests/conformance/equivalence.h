// SPDX-License-Identifier: Apache-2.0
// What the tests of equivalence run: N ranks that train, and the comparison with one process.
#pragma once

#include <string>
#include <vector>

#include "support/comms.h"
#include "training.h"

namespace zero::test {

struct Rank {
  Outcome outcome;
  std::string error;
};

std::vector<Rank> run(const Training& training, RankKind ranks, CommKind kind = CommKind::local);
std::vector<Rank> as_threads(const Training& training);
std::vector<Rank> as_processes(const Training& training);

/// Bit for bit, on every rank; -0 and +0 differ, and NaN never appears.
void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b, double slack,
                      const std::string& what);
void expect_equals_reference(const Training& training, const std::vector<Rank>& ranks,
                             const std::string& what);

struct Optimizer {
  const char* name;
  int32_t number;
  std::vector<std::string> names;
  std::vector<double> values;
};

extern const std::vector<Optimizer> kOptimizers;
extern const std::vector<Optimizer> kMoreOptimizers;

struct Kind {
  const char* name;
  std::vector<Dtypes> dtypes;
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t share_dtype = 0;
};

extern const std::vector<Kind> kKinds;
void set_kind(Training& training, const Kind& kind);

constexpr const char* kPartitions[] = {"even", "greedy", "in order", "manual"};
constexpr const char* kWheres[] = {"arenas", "per-rank arenas", "foreign", "mixed"};

/// Thirteen tensors, some empty, some longer than a block.
Training base(int world);

int max_world();
/// The comms of one turn of a grid: nightly all of them, otherwise one after the other.
std::vector<CommKind> comms_of(size_t turn);

}  // namespace zero::test
