// SPDX-License-Identifier: Apache-2.0
// Rows of step_bench: their statistics, as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "board.h"

namespace bench {

struct Spread {
  double median, p10, p90;
};
Spread spread(const Series& series);

struct Row {
  std::string workload, name;
  int ranks, rounds;
  int64_t elements;
  Spread seconds;
  double modelled, counted;  // bytes per parameter, over all ranks
  std::string reference;     // the kernel that measured the floor
  double reference_rate;     // bytes per second
  double read_rate;          // of reading alone, for comparison; 0: not measured
  double copy_rate;          // of the faster of two copies, for comparison
  double mix_rate;           // of five streams read, of which three are written, for comparison

  double floor() const { return modelled * static_cast<double>(elements) / reference_rate; }
  double of_floor() const { return floor() / seconds.median; }
};

struct Planning {
  int64_t params, ranks;
  double median_seconds;
};

void print_head();
void print_row(const Row& row);
/// If `path` is "-", writes to the standard output.
bool write_json(const std::string& path, const std::string& library, const std::vector<Row>& rows,
                const Planning& planning);

}  // namespace bench
