// SPDX-License-Identifier: Apache-2.0
// A classifier in dlib. With -DWITH_LIBZERO ranks share the batch, and libzero's SGD replaces
// dlib's solvers. Only the lines inside #ifdef WITH_LIBZERO differ.
//
// usage: dlib STEPS FILE. Rank 0 writes the parameters to FILE, in fp32.
#include <dlib/dnn.h>

#include <chrono>
#include <cstdio>
#include <vector>
#ifdef WITH_LIBZERO
#include "zero.hpp"
#endif

using Input = dlib::input<dlib::matrix<float, 64, 1>>;
using Net = dlib::loss_multiclass_log<
    dlib::fc<10, dlib::relu<dlib::fc<512, dlib::relu<dlib::fc<512, Input>>>>>>;

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  dlib::rand random(1);
  std::vector<dlib::matrix<float, 64, 1>> inputs(96);
  std::vector<unsigned long> labels(96);
  for (size_t row = 0; row < inputs.size(); row++) {
    for (float &value : inputs[row]) value = static_cast<float>(random.get_random_gaussian());
    labels[row] = random.get_integer(10);
  }
  Net net;
  dlib::resizable_tensor batch;
  net.to_tensor(inputs.begin(), inputs.end(), batch);
  net.compute_loss(batch, labels.begin()); /* allocates the parameters, and draws their values */
#ifdef WITH_LIBZERO
  const libzero::Comm comm = libzero::Comm::from_env();
  const int rank = comm.rank(), world = comm.world();
  libzero::Options options;
  options.optimizer = ZERO_OPTIMIZER_SGD;
  libzero::Optimizer optimizer(comm, options, {{"lr", 0.01}, {"momentum", 0.9}});
  std::vector<libzero::Param> params;
  dlib::visit_layer_parameters(net, [&](size_t layer, dlib::tensor &values) {
    if (values.size() == 0) return;
    params.push_back(
        {"layer" + std::to_string(layer), values.host(), {values.num_samples(), values.k()}});
  });
  optimizer.add(params);
  optimizer.broadcast_params(0);
#else
  const int rank = 0, world = 1;
  std::vector<dlib::sgd> solvers(Net::num_computational_layers, dlib::sgd(0, 0.9));
#endif
  const long rows = static_cast<long>(inputs.size()) / world, first = rank * rows;
  std::vector<double> seconds;
  for (int step = 0; step < std::atoi(argv[1]); step++) {
    net.to_tensor(inputs.begin() + first, inputs.begin() + first + rows, batch);
    net.compute_parameter_gradients(batch, labels.begin() + first);
    const auto begin = std::chrono::steady_clock::now();
#ifdef WITH_LIBZERO
    std::vector<void *> grads;
    dlib::visit_layer_parameter_gradients(net, [&](size_t, dlib::tensor &values) {
      if (values.size() != 0) grads.push_back(values.host());
    });
    optimizer.step(grads);
#else
    net.update_parameters(solvers, 0.01);
#endif
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  if (rank != 0) return 0;
  std::printf("step: %.1f us\n", 1e6 * seconds[seconds.size() / 2]);
  std::FILE *file = std::fopen(argv[2], "wb");
  dlib::visit_layer_parameters(net, [&](size_t, dlib::tensor &values) {
    std::fwrite(values.host(), sizeof(float), values.size(), file);
  });
  return std::fclose(file);
}
