// SPDX-License-Identifier: Apache-2.0
// Every optimizer and flag compared with recorded runs of torch.optim
// (tests/data/make_torch_traces.py), with torch's own tolerance for fp32, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "random_elements.h"
#include "rules/list.h"
#include "whole_step.h"

namespace zero {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kParameters = 64;
constexpr int64_t kSteps = 20;
constexpr double kRelative = 1.3e-6;
constexpr double kAbsolute = 1e-8;

using Row = std::vector<float>;

const std::filesystem::path kData =
    std::filesystem::path(__FILE__).parent_path().parent_path() / "data" / "torch_traces";

struct Change {
  int64_t step;  // 0: from the start
  std::string name;
  double value;
};

struct Case {
  std::string name;
  const Rule* rule;
  int32_t optimizer;  // its number
  size_t rows;
  std::vector<Change> changes;
};

Case parse_case(const std::string& line) {
  std::istringstream words(line);
  std::string optimizer, word;
  Case made{};
  words >> made.name >> optimizer >> made.rows;
  made.rule = find_rule(std::string_view(optimizer));
  while (made.optimizer < kRuleCount && find_rule(made.optimizer) != made.rule) made.optimizer++;
  while (words >> word) {
    const size_t colon = word.find(':');
    const size_t name = colon == std::string::npos ? 0 : colon + 1;
    const size_t equals = word.find('=');
    const int64_t step = colon == std::string::npos ? 0 : std::stoll(word.substr(0, colon));
    made.changes.push_back(
        {step, word.substr(name, equals - name), std::strtod(word.c_str() + equals + 1, nullptr)});
  }
  return made;
}

struct Traces {
  std::vector<Case> cases;
  std::vector<Row> rows;
};

Traces read_traces() {
  Traces traces;
  std::ifstream cases(kData / "cases.txt");
  for (std::string line; std::getline(cases, line);) traces.cases.push_back(parse_case(line));
  std::ifstream file(kData / "traces.f32", std::ios::binary);
  Row row(kParameters);
  while (file.read(reinterpret_cast<char*>(row.data()),
                   std::streamsize(kParameters * sizeof(float)))) {
    traces.rows.push_back(row);
  }
  return traces;
}

/// A vector, and the largest magnitude that each element ever had. Rounding errors scale with that
/// after values cancel.
struct Tracked {
  Row values = Row(kParameters);
  Row largest = Row(kParameters);

  void track() {
    for (size_t i = 0; i < kParameters; ++i)
      largest[i] = std::max(largest[i], std::fabs(values[i]));
  }
};

void expect_close(const Tracked& actual, const Row& torch, const std::string& what) {
  for (size_t i = 0; i < kParameters; ++i) {
    const double error = std::fabs(double{actual.values[i]} - double{torch[i]});
    const double allowed = kAbsolute + kRelative * actual.largest[i];
    EXPECT_LE(error, allowed) << what << "[" << i << "]: torch " << torch[i] << ", here "
                              << actual.values[i];
  }
}

void apply_changes(const Case& c, int64_t step, std::vector<double>& settings) {
  for (const Change& change : c.changes) {
    if (change.step != step) continue;
    settings.at(static_cast<size_t>(find_setting(*c.rule, change.name))) = change.value;
  }
}

/// `rows` is this case's part of traces.f32.
void run_case(const Case& c, const Row& start, const Row* gradients, const Row* rows, Isa isa) {
  const Rule& rule = *c.rule;
  std::vector<double> settings = test::defaults_of(rule);
  apply_changes(c, 0, settings);

  Tracked param{start};
  Tracked slots[kMaxSlots];
  param.track();
  uint32_t live = 0;
  double product = 1;
  for (int64_t step = 1; step <= kSteps; ++step) {
    apply_changes(c, step, settings);
    const uint32_t used = rule.slots_used(settings);
    UpdateRun run{param.values.data(), gradients[step - 1].data(), {}, kParameters};
    for (size_t s = 0; s < rule.slots.size(); ++s) {
      if (used >> s & 1) run.slots[s] = slots[s].values.data();
    }
    const StepContext context{settings.data(), step, live, 1.0, product};
    test::whole_step(isa, c.optimizer, run, context);
    if (rule.next_product != nullptr) product = rule.next_product(context);
    live |= used;
    param.track();
    for (Tracked& slot : slots) slot.track();
    expect_close(param, rows[step - 1], c.name + " step " + std::to_string(step));
  }
  size_t row = kSteps;
  for (size_t s = 0; s < rule.slots.size(); ++s) {
    if (live >> s & 1) expect_close(slots[s], rows[row++], c.name + " " + rule.slots[s]);
  }
  EXPECT_EQ(row, c.rows) << c.name;
}

TEST(TorchParity, every_optimizer_and_flag_follows_torch_step_by_step) {
  const Traces traces = read_traces();
  ASSERT_GE(traces.cases.size(), 130u) << "in " << kData;
  size_t row = 1 + kSteps;
  for (const Case& c : traces.cases) {
    ASSERT_NE(c.rule, nullptr) << c.name;
    ASSERT_LE(row + c.rows, traces.rows.size()) << c.name;
    for (const Isa isa : available_isas()) {
      run_case(c, traces.rows[0], &traces.rows[1], &traces.rows[row], isa);
    }
    row += c.rows;
  }
  EXPECT_EQ(row, traces.rows.size());
}

}  // namespace
}  // namespace zero
