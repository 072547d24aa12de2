// SPDX-License-Identifier: Apache-2.0
// zero_torch.hpp with libtorch's own modules, on the ranks that zero-run starts. Prints "sound".
#include "zero_torch.hpp"

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void expect(bool condition, const std::string &what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
  std::exit(1);
}

template <class Body>
void expect_refused(const std::string &words, Body body) {
  try {
    body();
  } catch (const std::invalid_argument &error) {
    return expect(std::string(error.what()).find(words) != std::string::npos, error.what());
  }
  expect(false, "refused: " + words);
}

libzero::Options sgd() {
  libzero::Options options;
  options.optimizer = ZERO_OPTIMIZER_SGD;
  return options;
}
const libzero::Settings kRate = {{"lr", 0.5}};

torch::nn::Sequential model() {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3)),
                               torch::nn::BatchNorm2d(3), torch::nn::Flatten(),
                               torch::nn::Linear(3 * 4 * 4, 2));
}

/// Trains by all rows in torch, and by a share of them on each rank here: in memory of either kind,
/// and with a parameter that is frozen and one that is used twice.
void trains_as_one_process(const libzero::Comm &comm, int32_t memory) {
  torch::manual_seed(comm.rank() == 0 ? 3 : 4);  // rank 0's parameters are everybody's
  torch::nn::Sequential ours = model();
  ours->eval();  // running means as they are
  ours->parameters()[1].requires_grad_(false);
  ours->register_module("again", ours->ptr(3));
  libzero::TorchOptimizer optimizer(comm, *ours, sgd(), kRate, memory);
  torch::manual_seed(3);
  torch::nn::Sequential theirs = model();
  theirs->eval();
  theirs->parameters()[1].requires_grad_(false);
  torch::optim::SGD reference(theirs->parameters(), 0.5);
  const torch::Tensor rows = torch::randn({6, 1, 6, 6});
  for (int step = 0; step < 3; step++) {
    ours->forward(rows.chunk(comm.world())[comm.rank()]).pow(2).mean().backward();
    expect(optimizer.step(), "a step is made");
    optimizer.zero_grad();
    theirs->forward(rows).pow(2).mean().backward();
    reference.step();
    reference.zero_grad();
  }
  comm.barrier();
  for (size_t i = 0; i < theirs->parameters().size(); i++) {
    expect(torch::allclose(ours->parameters()[i], theirs->parameters()[i], 1e-5, 1e-6),
           "parameter " + std::to_string(i) + " is that of one process");
  }
  expect((optimizer.stats().copied_bytes == 0) == (memory != 0),
         "arenas save copies, and only they");
  comm.barrier();
}

void buffers_are_rank_0s_and_saved(const libzero::Comm &comm) {
  torch::nn::BatchNorm2d norm(3);
  norm->running_mean.fill_(comm.rank() + 1);
  libzero::TorchOptimizer optimizer(comm, *norm, sgd());
  expect(norm->running_mean[0].item<float>() == 1, "buffers are rank 0's");
  expect(optimizer.param_index("weight") == 0, "names are the module's");
}

/// Tensors outlive their optimizer, and with them the arenas.
void parameters_stay_when_their_optimizer_goes(const libzero::Comm &comm) {
  torch::nn::Linear linear(8, 8);
  linear->weight.detach().fill_(7);
  { libzero::TorchOptimizer optimizer(comm, *linear, sgd(), kRate, ZERO_MEMORY_PER_RANK); }
  expect(linear->weight.sum().item<float>() == 7 * 64, "values stay");
}

/// As torch::load gives parameters: other storage, which takes the place of what was registered.
void parameters_with_other_storage_train_on(const libzero::Comm &comm, int32_t memory) {
  torch::nn::Linear linear(8, 1);
  libzero::TorchOptimizer optimizer(comm, *linear, sgd(), kRate, memory);
  linear->weight.set_data(torch::full({1, 8}, 3.0));
  optimizer.broadcast_params(0);
  linear->forward(torch::ones({1, 8})).sum().backward();
  optimizer.step();
  comm.barrier();
  expect(linear->weight.sum().item<float>() == 8 * 2.5f, "the new values are trained");
  comm.barrier();
  linear->weight.set_data(torch::full({1, 8}, 3.0, torch::kFloat64));
  expect_refused("another dtype", [&] { optimizer.step(); });
}

void gradients_are_clipped_before_a_step(const libzero::Comm &comm, int32_t memory) {
  torch::nn::Linear linear(4, 1);
  linear->weight.detach().fill_(1);
  libzero::TorchOptimizer optimizer(comm, *linear, sgd(), {{"lr", 1}}, memory);
  (linear->forward(torch::full({1, 4}, 2.0)).sum()).backward();
  optimizer.clip_grad_value(0.5);
  expect(std::abs(optimizer.clip_grad_norm(1e9) - std::sqrt(5 * 0.25)) < 1e-12,
         "the norm is of 5 halves");
  optimizer.step();
  comm.barrier();
  expect(linear->weight.sum().item<float>() == 2, "a step is by what was clipped");
  comm.barrier();
}

/// A mask of bools, as attention has one, and a buffer with two names.
void buffers_that_libzero_lacks_are_left_out(const libzero::Comm &comm) {
  torch::nn::Linear linear(2, 2);
  linear->register_buffer("mask", torch::ones({2, 2}, torch::kBool));
  const torch::Tensor twice = linear->register_buffer("once", torch::full({2}, comm.rank() + 1.0f));
  linear->register_buffer("twice", twice);
  libzero::TorchOptimizer optimizer(comm, *linear, sgd());
  expect(twice[0].item<float>() == 1, "a buffer is rank 0's");
}

void what_cannot_be_trained_is_named(const libzero::Comm &comm) {
  torch::nn::Linear linear(2, 3);
  linear->weight.set_data(torch::zeros({2, 3}).t());
  expect_refused("weight is not contiguous",
                 [&] { libzero::TorchOptimizer optimizer(comm, *linear); });
  torch::nn::Linear complex(2, 3);
  complex->to(torch::kComplexFloat);
  expect_refused("weight has a dtype that libzero lacks",
                 [&] { libzero::TorchOptimizer optimizer(comm, *complex); });
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  const libzero::Comm comm = libzero::Comm::from_env();
  for (const int32_t memory : {0, int32_t{ZERO_MEMORY_PER_RANK}, int32_t{ZERO_MEMORY_SHARED}}) {
    trains_as_one_process(comm, memory);
  }
  for (const int32_t memory : {0, int32_t{ZERO_MEMORY_PER_RANK}, int32_t{ZERO_MEMORY_SHARED}}) {
    parameters_with_other_storage_train_on(comm, memory);
    gradients_are_clipped_before_a_step(comm, memory);
  }
  buffers_are_rank_0s_and_saved(comm);
  buffers_that_libzero_lacks_are_left_out(comm);
  parameters_stay_when_their_optimizer_goes(comm);
  what_cannot_be_trained_is_named(comm);
  std::puts("sound");
}
