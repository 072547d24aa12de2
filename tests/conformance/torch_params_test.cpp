// SPDX-License-Identifier: Apache-2.0
// Parameters that are frozen and thawed, or have their own settings, compared with recorded runs of
// torch.optim (tests/data/make_torch_traces.py), through the public header on two ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "zero.h"

namespace zero::test {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kTensors = 4;
constexpr int64_t kNumbers = 16;
constexpr int kSteps = 20;
constexpr int kEvery = 5;             // one in so many steps is recorded
constexpr double kRelative = 1.3e-6;  // the tolerance of torch for fp32
constexpr double kAbsolute = 1e-8;

using Row = std::array<float, kNumbers>;
using Rows = std::vector<Row>;

struct Span {
  int first = 0, last = 0;
};

struct Case {
  std::string name;
  int32_t optimizer = 0;
  Settings settings;
  std::array<zero_param, kTensors> params;  // with their own settings
  std::array<std::vector<Span>, kTensors> frozen;

  bool is_frozen(size_t tensor, int step) const {
    return std::any_of(frozen[tensor].begin(), frozen[tensor].end(),
                       [step](Span span) { return span.first <= step && step <= span.last; });
  }
};

/// In the order of ZERO_OPTIMIZER_*.
constexpr std::array kNames = {"adamw",    "adam",  "sgd",   "rmsprop", "adagrad", "lion", "adamax",
                               "adadelta", "radam", "nadam", "rprop",   "lamb",    "lars"};

int32_t number_of(const std::string& optimizer) {
  const auto found = std::find(kNames.begin(), kNames.end(), optimizer);
  EXPECT_NE(found, kNames.end()) << optimizer;
  return static_cast<int32_t>(found - kNames.begin());
}

Case parse(const std::string& line) {
  Case made;
  for (zero_param& param : made.params) ZERO_INIT(param);
  std::istringstream words(line);
  std::string optimizer, word;
  words >> made.name >> optimizer;
  made.optimizer = number_of(optimizer);
  while (words >> word) {
    const size_t equals = word.find('='), colon = word.find(':');
    const std::string key = word.substr(0, equals);
    const char* const value = word.c_str() + equals + 1;
    if (key == "frozen") {
      size_t tensor = 0;
      Span span;
      EXPECT_EQ(std::sscanf(value, "%zu:%d-%d", &tensor, &span.first, &span.last), 3) << word;
      made.frozen.at(tensor).push_back(span);
    } else if (colon < equals) {
      zero_param& param = made.params.at(std::strtoul(word.c_str(), nullptr, 10));
      const bool scale = key.substr(colon + 1) == "lr_scale";
      (scale ? param.lr_scale : param.weight_decay) = std::strtod(value, nullptr);
      param.flags |= scale ? ZERO_PARAM_LR_SCALE : ZERO_PARAM_WEIGHT_DECAY;
    } else {
      made.settings.emplace_back(key, std::strtod(value, nullptr));
    }
  }
  return made;
}

std::filesystem::path data_directory() {
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "data" / "torch_traces";
}

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  std::ifstream file(data_directory() / "params.txt");
  for (std::string line; std::getline(file, line);) cases.push_back(parse(line));
  return cases;
}

Rows read_rows() {
  Rows rows;
  std::ifstream file(data_directory() / "params.f32", std::ios::binary);
  for (Row row; file.read(reinterpret_cast<char*>(row.data()), sizeof row);) rows.push_back(row);
  return rows;
}

/// Runs a case on one rank. `rows` begins with the tensors and the gradients, and `expected` is the
/// part of this case. Both ranks have the same gradients, so the mean is exact.
void follow(const Case& c, zero_comm* comm, const Rows& rows, const Row* expected) {
  std::array<Row, kTensors> data, largest{};
  Row grads[kTensors];
  std::array<zero_param, kTensors> params = c.params;
  const char* const called[] = {"a", "b", "c", "d"};
  for (size_t t = 0; t < kTensors; t++) {
    data[t] = rows[t];
    params[t].name = called[t];
    params[t].data = data[t].data();
    params[t].grad = grads[t].data();
    params[t].shape = &kNumbers;
    params[t].ndim = 1;
    if (c.is_frozen(t, 1)) params[t].flags |= ZERO_PARAM_FROZEN;
  }
  Optim optim(comm, options_with([&](zero_options& o) { o.optimizer = c.optimizer; }), c.settings);
  optim.add(params);
  for (int step = 1; step <= kSteps; step++) {
    for (size_t t = 0; t < kTensors; t++) {
      grads[t] = rows[kTensors * static_cast<size_t>(step) + t];
      optim.freeze(static_cast<int64_t>(t), c.is_frozen(t, step));
    }
    EXPECT_OK(optim.step());
    for (size_t t = 0; t < kTensors; t++) {
      for (size_t i = 0; i < kNumbers; i++) {
        // The magnitude that rounding errors scale with after values cancel.
        largest[t][i] = std::max({largest[t][i], std::fabs(rows[t][i]), std::fabs(data[t][i])});
        if (step % kEvery != 0) continue;
        const Row& torch = expected[kTensors * static_cast<size_t>(step / kEvery - 1) + t];
        EXPECT_NEAR(data[t][i], torch[i], kAbsolute + kRelative * largest[t][i])
            << c.name << " step " << step << " tensor " << t << "[" << i << "]";
      }
    }
  }
}

TEST(TorchParams, parameters_that_freeze_or_have_settings_of_their_own_follow_torch) {
  const std::vector<Case> cases = read_cases();
  const Rows rows = read_rows();
  constexpr size_t kFirst = kTensors * (kSteps + 1), kOfCase = kTensors * kSteps / kEvery;
  ASSERT_EQ(cases.size(), 132u) << "in " << data_directory();
  ASSERT_EQ(rows.size(), kFirst + cases.size() * kOfCase);
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int) {
    for (size_t c = 0; c < cases.size(); c++)
      follow(cases[c], comm, rows, &rows[kFirst + c * kOfCase]);
  });
}

}  // namespace
}  // namespace zero::test
