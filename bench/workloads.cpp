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

/// The dimensions of a GPT.
struct Gpt {
  int64_t width, layers;
};
constexpr Gpt kGpt2{768, 12};

void add_norm(Workload& work, const std::string& name, int64_t width) {
  work.add(name + ".weight", {width});
  work.add(name + ".bias", {width});
}

void add_linear(Workload& work, const std::string& name, int64_t in, int64_t out) {
  work.add(name + ".weight", {in, out});
  work.add(name + ".bias", {out});
}

void add_blocks(Workload& work, const Gpt& gpt) {
  const int64_t width = gpt.width;
  for (int64_t layer = 0; layer < gpt.layers; layer++) {
    const std::string block = "h." + std::to_string(layer) + ".";
    add_norm(work, block + "ln_1", width);
    add_linear(work, block + "attn.c_attn", width, 3 * width);
    add_linear(work, block + "attn.c_proj", width, width);
    add_norm(work, block + "ln_2", width);
    add_linear(work, block + "mlp.c_fc", width, 4 * width);
    add_linear(work, block + "mlp.c_proj", 4 * width, width);
  }
}

Workload whole(std::string name, const Gpt& gpt, int64_t positions) {
  Workload work{.name = std::move(name)};
  work.add("wte.weight", {50257, gpt.width});
  work.add("wpe.weight", {positions, gpt.width});
  add_blocks(work, gpt);
  add_norm(work, "ln_f", gpt.width);
  return work;
}

}  // namespace

Workload gpt2() { return whole("gpt2", kGpt2, 1024); }

Workload gpt3() { return whole("gpt3", {12288, 96}, 2048); }

Workload blocks() {
  Workload work{.name = "blocks"};
  add_blocks(work, kGpt2);
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
