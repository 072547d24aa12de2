// SPDX-License-Identifier: Apache-2.0
// The loops over elements, each instruction set's, from a tile in the L1 cache to arrays in memory.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/float_environment.h"
#include "kernels/kernels.h"
#include "random_fill.h"
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

/// Positive, as second moments are.
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

void sum_in_rank_order(benchmark::State& state, const KernelTable& kernels, int ranks) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<Array> arrays;
  std::vector<const float*> in;
  for (int rank = 0; rank < ranks; rank++) {
    arrays.push_back(make_array(count, 1, static_cast<uint64_t>(rank)));
    in.push_back(arrays.back().get());
  }
  const Array out = make_array(count, 1, 99);
  for (auto _ : state) {
    kernels.sum_in_rank_order(out.get(), in.data(), ranks, count);
    benchmark::ClobberMemory();
  }
  finish(state, count, 4.0 * (ranks + 1));
}

template <class Function>
void reduction(benchmark::State& state, Function function) {
  const auto count = static_cast<size_t>(state.range(0));
  const Array data = make_array(count, 1, 1);
  for (auto _ : state) benchmark::DoNotOptimize(function(data.get(), count));
  finish(state, count, 4);
}

void update(benchmark::State& state, const KernelTable& kernels, int32_t optimizer) {
  const auto count = static_cast<size_t>(state.range(0));
  const zero::Rule& rule = *zero::find_rule(optimizer);
  std::vector<double> settings;
  for (const zero::Setting& setting : rule.settings) settings.push_back(setting.initial);
  const int momentum = zero::find_setting(rule, "momentum");
  if (momentum >= 0) settings[static_cast<size_t>(momentum)] = 0.9;
  const zero::Scalars scalars =
      rule.prepare({.settings = settings, .step = 10, .live_slots = 7, .factor = 0.5});

  const Array param = make_array(count, 1, 1), grad = make_array(count, 1e-2f, 2);
  const Array first = make_array(count, 1e-2f, 3), second = make_squares(count, 4);
  zero::UpdateRun run{};
  run.param = param.get();
  run.grad = grad.get();
  run.count = count;
  run.slots[0] = first.get();
  double streams = 5;  // param and one slot, read and written, and the gradient
  if (rule.slots.size() > 1) {
    run.slots[1] = second.get();
    streams += 2;
  }
  for (auto _ : state) {
    kernels.update[optimizer](run, scalars);
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
  const std::string suffix = std::string("/") + zero::isa_name(isa);
  const auto add = [&](const std::string& name, auto function) {
    benchmark::RegisterBenchmark((name + suffix).c_str(), function)->Apply(sizes);
  };
  for (const int ranks : {1, 2, 4, 8}) {
    add("sum_in_rank_order/" + std::to_string(ranks),
        [&kernels, ranks](benchmark::State& state) { sum_in_rank_order(state, kernels, ranks); });
  }
  add("count_nonfinite",
      [&](benchmark::State& state) { reduction(state, kernels.count_nonfinite); });
  add("sum_abs", [&](benchmark::State& state) { reduction(state, kernels.sum_abs); });
  add("sum_squares", [&](benchmark::State& state) { reduction(state, kernels.sum_squares); });
  add("max_abs", [&](benchmark::State& state) { reduction(state, kernels.max_abs); });
  constexpr int32_t kOptimizers[] = {ZERO_OPTIMIZER_ADAMW, ZERO_OPTIMIZER_ADAM, ZERO_OPTIMIZER_SGD};
  for (const int32_t optimizer : kOptimizers) {
    add(std::string("update_") + zero::find_rule(optimizer)->name,
        [&kernels, optimizer](benchmark::State& state) { update(state, kernels, optimizer); });
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
