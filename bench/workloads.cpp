// SPDX-License-Identifier: Apache-2.0
#include "workloads.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace bench {

void Workload::add(std::string tensor, std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) count *= dimension;
  tensors.push_back({std::move(tensor), std::move(shape), count});
  elements += count;
}

namespace {

constexpr int64_t kWidth = 768;

void add_norm(Workload& work, const std::string& name) {
  work.add(name + ".weight", {kWidth});
  work.add(name + ".bias", {kWidth});
}

void add_linear(Workload& work, const std::string& name, int64_t in, int64_t out) {
  work.add(name + ".weight", {in, out});
  work.add(name + ".bias", {out});
}

void add_blocks(Workload& work) {
  for (int layer = 0; layer < 12; layer++) {
    const std::string block = "h." + std::to_string(layer) + ".";
    add_norm(work, block + "ln_1");
    add_linear(work, block + "attn.c_attn", kWidth, 3 * kWidth);
    add_linear(work, block + "attn.c_proj", kWidth, kWidth);
    add_norm(work, block + "ln_2");
    add_linear(work, block + "mlp.c_fc", kWidth, 4 * kWidth);
    add_linear(work, block + "mlp.c_proj", 4 * kWidth, kWidth);
  }
}

}  // namespace

Workload gpt2() {
  Workload work{.name = "gpt2"};
  work.add("wte.weight", {50257, kWidth});
  work.add("wpe.weight", {1024, kWidth});
  add_blocks(work);
  add_norm(work, "ln_f");
  return work;
}

Workload blocks() {
  Workload work{.name = "blocks"};
  add_blocks(work);
  return work;
}

Workload small() {
  Workload work{.name = "small"};
  std::mt19937_64 random(20000);
  const double octaves = std::log2(4097.0);
  for (int i = 0; i < 20000; i++) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto count = static_cast<int64_t>(std::exp2(unit * octaves));
    work.add(std::to_string(i), {std::clamp<int64_t>(count, 1, 4096)});
  }
  return work;
}

Workload flat() {
  Workload work{.name = "flat"};
  work.add("flat", {small().elements});
  return work;
}

}  // namespace bench
