// SPDX-License-Identifier: Apache-2.0
// The loops over elements with each instruction set, from a tile in the L1 cache to arrays in
// memory.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "base/float_environment.h"
#include "kernels/kernels.h"
#include "random_fill.h"
#include "rules/list.h"
#include "zero.h"

namespace {

using zero::KernelTable;

struct Free {
  void operator()(float* data) const { std::free(data); }
};
using Array = std::unique_ptr<float, Free>;

Array make_array(size_t count, float scale, uint64_t seed) {
  const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
  Array array(static_cast<float*>(std::aligned_alloc(64, bytes)));
  bench::random_fill(array.get(), count, scale, seed);
  return array;
}

/// Returns positive numbers, like second moments.
Array make_squares(size_t count, uint64_t seed) {
  Array array = make_array(count, 1e-2f, seed);
  for (size_t i = 0; i < count; i++) array.get()[i] *= array.get()[i];
  return array;
}

void finish(benchmark::State& state, size_t count, double bytes_per_element) {
  const auto elements = static_cast<double>(state.iterations()) * static_cast<double>(count);
  state.SetItemsProcessed(static_cast<int64_t>(elements));
  state.SetBytesProcessed(static_cast<int64_t>(elements * bytes_per_element));
}

/// Sums into one of the inputs, like a step.
void reduce(benchmark::State& state, const KernelTable& kernels, zero::Norm norm, int ranks) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<Array> arrays;
  std::vector<const void*> in;
  for (int rank = 0; rank < ranks; rank++) {
    arrays.push_back(make_array(count, 1e-3f, static_cast<uint64_t>(rank)));
    in.push_back(arrays.back().get());
  }
  const zero::ReduceKernel sum = kernels.reduction(zero::DType::f32, zero::DType::f32, norm);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sum(arrays[0].get(), in.data(), ranks, count));
    benchmark::ClobberMemory();
  }
  finish(state, count, 4.0 * (ranks + (ranks > 1 ? 1 : 0)));
}

/// Also sums `ranks` gradients.
void update(benchmark::State& state, const KernelTable& kernels, int32_t optimizer, int ranks) {
  const auto count = static_cast<size_t>(state.range(0));
  const zero::Rule& rule = *zero::find_rule(optimizer);
  std::vector<double> settings;
  for (const zero::Setting& setting : rule.settings) settings.push_back(setting.initial);
  const int momentum = zero::find_setting(rule, "momentum");
  if (momentum >= 0) settings[static_cast<size_t>(momentum)] = 0.9;
  const zero::Scalars scalars =
      rule.prepare({.settings = settings.data(), .step = 10, .live_slots = 7, .factor = 0.5});

  const Array param = make_array(count, 1, 1), grad = make_array(count, 1e-2f, 2);
  const Array second = make_squares(count, 4);
  const std::string_view kind = rule.slots[0];
  const Array first =
      kind == "square_avg" || kind == "sum" ? make_squares(count, 3) : make_array(count, 1e-2f, 3);
  zero::UpdateRun run{};
  run.param = param.get();
  run.grad = grad.get();
  run.count = count;
  std::vector<Array> arrays;
  std::vector<const float*> others;
  for (int rank = 1; rank < ranks; rank++) {
    arrays.push_back(make_array(count, 1e-2f, static_cast<uint64_t>(10 + rank)));
    others.push_back(arrays.back().get());
  }
  run.others = others.data();
  run.other_count = ranks - 1;
  double streams = 2 + ranks;  // param, read and written, and the gradients; LAMB's first kernel
                               // writes directions instead
  const Array* const slots[] = {&first, &second};
  for (size_t slot = 0; slot < std::size(slots); slot++) {
    if ((rule.slots_used(settings) >> slot & 1) == 0) continue;
    run.slots[slot] = slots[slot]->get();
    streams += 2;
  }
  for (auto _ : state) {
    if (optimizer == ZERO_OPTIMIZER_LAMB) {
      zero::Squares squares;
      kernels.singles.lamb.measure(run, grad.get(), scalars, count, count, &squares);
    } else {
      kernels.singles.update[optimizer](run, scalars);
    }
    benchmark::ClobberMemory();
  }
  finish(state, count, 4 * streams);
}

/// A tile, the L2 cache, and memory.
void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2048)->Arg(65'536)->Arg(16'777'216);
}

void register_table(zero::Isa isa) {
  const KernelTable& kernels = zero::kernel_table(isa);
  const std::string suffix = std::string("/") + zero::kernel_table(isa).name;
  const auto add = [&](const std::string& name, auto function) {
    benchmark::RegisterBenchmark((name + suffix).c_str(), function)->Apply(sizes);
  };
  const std::pair<const char*, zero::Norm> kNorms[] = {{"none", zero::Norm::none},
                                                       {"abs", zero::Norm::abs},
                                                       {"squares", zero::Norm::squares},
                                                       {"largest", zero::Norm::largest}};
  for (const int ranks : {1, 2, 4, 8}) {
    for (const auto& [name, norm] : kNorms) {
      add("reduce_" + std::to_string(ranks) + "/" + name,
          [&kernels, norm = norm, ranks](benchmark::State& state) {
            reduce(state, kernels, norm, ranks);
          });
    }
  }
  for (int32_t optimizer = 0; optimizer < zero::kRuleCount; optimizer++) {
    for (const int ranks : {1, 2, 4}) {
      add("update_" + std::to_string(ranks) + "/" + zero::find_rule(optimizer)->name,
          [&kernels, optimizer, ranks](benchmark::State& state) {
            update(state, kernels, optimizer, ranks);
          });
    }
  }
}

}  // namespace

int main(int count, char** words) {
  benchmark::Initialize(&count, words);
  if (benchmark::ReportUnrecognizedArguments(count, words)) return 2;
  for (const zero::Isa isa : zero::available_isas()) register_table(isa);
  const zero::FloatEnvironment environment;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
