// SPDX-License-Identifier: Apache-2.0
// The fragments of docs/integrate.md for libtorch, with a model whose names end when torch's would.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "torch/torch.h"
#include "zero.h"

static void check(zero_status status) {
  if (status >= 0) return;
  std::fprintf(stderr, "%s: %s\n", zero_status_name(status), zero_last_error());
  std::exit(1);
}

int main() {
  zero_comm *comm;
  zero_optim *optim;
  check(zero_comm_create_solo(&comm, nullptr));
  check(zero_create(&optim, comm, nullptr));
  auto model = std::make_shared<torch::nn::Module>();
  torch::Tensor loss = model->loss();
  void *stream = nullptr;
#include "integrate/libtorch-from-any-language-1.cpp"
#include "integrate/libtorch-from-any-language-2.cpp"
  for (const auto &[name, number] : {std::pair{"weight", 0}, std::pair{"bias", 1}}) {
    int64_t index = -1;
    check(zero_param_index(optim, name, &index));
    if (index != number) return std::puts(name), 1;
  }
  zero_free(optim);
  zero_comm_free(comm);
}
