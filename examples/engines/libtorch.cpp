// SPDX-License-Identifier: Apache-2.0
// A classifier in libtorch. With -DWITH_LIBZERO ranks share the batch, and libzero's AdamW replaces
// libtorch's. Only the lines inside #ifdef WITH_LIBZERO differ.
//
// usage: libtorch STEPS FILE. Rank 0 writes the parameters to FILE, in fp32.
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <chrono>
#include <cstdio>
#include <vector>
#ifdef WITH_LIBZERO
#include "zero_torch.hpp"
#endif

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  torch::manual_seed(1);
  torch::set_num_threads(1);
  torch::nn::Sequential model(torch::nn::Linear(64, 512), torch::nn::GELU(),
                              torch::nn::Linear(512, 512), torch::nn::GELU(),
                              torch::nn::Linear(512, 10));
  const torch::Tensor inputs = torch::randn({96, 64}), labels = torch::randint(10, {96});
#ifdef WITH_LIBZERO
  const libzero::Comm comm = libzero::Comm::from_env();
  const int rank = comm.rank(), world = comm.world();
  libzero::TorchOptimizer optimizer(comm, *model, {}, {{"lr", 1e-3}}, ZERO_MEMORY_SHARED);
#else
  const int rank = 0, world = 1;
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
#endif
  std::vector<double> seconds;
  for (int step = 0; step < std::atoi(argv[1]); step++) {
    const torch::Tensor input = inputs.chunk(world)[rank], label = labels.chunk(world)[rank];
    torch::nn::functional::cross_entropy(model->forward(input), label).backward();
    const auto begin = std::chrono::steady_clock::now();
    optimizer.step();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    optimizer.zero_grad();
  }
  std::sort(seconds.begin(), seconds.end());
  if (rank != 0) return 0;
  std::printf("step: %.1f us\n", 1e6 * seconds[seconds.size() / 2]);
  std::FILE *file = std::fopen(argv[2], "wb");
  for (const torch::Tensor &tensor : model->parameters()) {
    std::fwrite(tensor.data_ptr(), sizeof(float), static_cast<size_t>(tensor.numel()), file);
  }
  return std::fclose(file);
}
