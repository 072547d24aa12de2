// SPDX-License-Identifier: Apache-2.0
#include "uneven.h"

#include <algorithm>
#include <cstring>

namespace zero::test {
namespace {

uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

float small_number(uint32_t seed) {
  return static_cast<float>(static_cast<int32_t>(mixed(seed) >> 8) - (1 << 23)) * 0x1p-24f;
}

std::vector<std::vector<float>> initial_params(const Uneven& run) {
  std::vector<std::vector<float>> params;
  for (size_t i = 0; i < run.sizes.size(); i++) {
    params.emplace_back(run.sizes[i]);
    for (size_t k = 0; k < run.sizes[i]; k++)
      params[i][k] = small_number(static_cast<uint32_t>(i * 7919 + k));
  }
  return params;
}

}  // namespace

Training Uneven::rule() const {
  Training rule;
  rule.optimizer = optimizer;
  rule.settings = {{"lr", lr}};
  if (optimizer == ZERO_OPTIMIZER_SGD) rule.settings.emplace_back("momentum", momentum);
  return rule;
}

std::vector<float> batch_gradient(const Uneven& run, size_t param, int rank, int batch) {
  std::vector<float> out(run.sizes[param]);
  const auto seed = static_cast<uint32_t>(batch * 31 + rank * 1009 + static_cast<int>(param) * 101);
  for (size_t k = 0; k < out.size(); k++)
    out[k] = small_number(mixed(seed + 12345) + static_cast<uint32_t>(k));
  return out;
}

Plain::Plain(const Uneven& run)
    : run_(run), rule_(run.rule()), params_(initial_params(run)), states_(run.sizes.size()) {}

void Plain::step(const std::vector<int>& batches, double factor) {
  std::vector<std::vector<float>> sums;
  for (size_t i = 0; i < params_.size(); i++) {
    std::vector<float>& sum = sums.emplace_back(params_[i].size(), 0.0f);
    for (int rank = 0; rank < run_.world; rank++) {
      const int batch = batches[static_cast<size_t>(rank)];
      if (batch < 0) continue;
      const std::vector<float> one = batch_gradient(run_, i, rank, batch);
      for (size_t k = 0; k < sum.size(); k++) sum[k] = sum[k] + one[k];
    }
  }
  update(sums, factor);
}

void Plain::update(const std::vector<std::vector<float>>& sums, double factor) {
  for (size_t i = 0; i < params_.size(); i++) {
    std::vector<float> grad = sums[i];
    for (float& g : grad) g = g * static_cast<float>(factor);
    states_[i].update(rule_, params_[i], grad);
  }
}

double factor_of(const Uneven& run, int active) {
  return 1.0 / (run.option == ZERO_UNEVEN_ACTIVE ? active : run.world);
}

void train_epoch(Plain& model, const Uneven& run, const std::vector<int>& counts,
                 const std::function<void(int)>& after) {
  const int longest = *std::max_element(counts.begin(), counts.end());
  for (int step = 0; step < longest; step++) {
    std::vector<int> batches;
    int active = 0;
    for (const int count : counts) {
      batches.push_back(step < count ? step : -1);
      active += step < count;
    }
    model.step(batches, factor_of(run, active));
    if (after) after(step);
  }
}

int last_of(const std::vector<int>& counts) {
  int last = 0;
  for (size_t rank = 0; rank < counts.size(); rank++)
    if (counts[rank] >= counts[static_cast<size_t>(last)]) last = static_cast<int>(rank);
  return last;
}

zero_options Uneven::options() const {
  auto options = initialized<zero_options>();
  options.optimizer = optimizer;
  options.partition = partition;
  options.bucket_bytes = 8192;
  options.threads = 1;
  options.uneven_inputs = option;
  options.loss_scale = loss_scale;
  options.growth_interval = growth_interval;
  options.overlap_gather = overlaps;
  return options;
}

void Seat::register_all() {
  params_ = initial_params(run_);
  for (const auto& param : params_) grads_.emplace_back(param.size(), 0.0f);
  const std::vector<int64_t> shapes(run_.sizes.begin(), run_.sizes.end());
  std::vector<std::string> labels;
  std::vector<zero_param> given;
  for (size_t i = 0; i < params_.size(); i++) labels.push_back("p" + std::to_string(i));
  for (size_t i = 0; i < params_.size(); i++) {
    given.push_back(parameter(labels[i].c_str(), shapes[i], params_[i].data(), grads_[i].data()));
    given[i].owner = static_cast<int32_t>(i) % run_.world;
  }
  add(given);
}

void Seat::fill(int batch) {
  for (size_t i = 0; i < grads_.size(); i++) {
    const std::vector<float> one = batch_gradient(run_, i, rank(), batch);
    std::copy(one.begin(), one.end(), grads_[i].begin());
  }
}

void Seat::fill_with(float value) {
  for (auto& grad : grads_) std::fill(grad.begin(), grad.end(), value);
}

std::vector<void*> Seat::grads() {
  std::vector<void*> all;
  for (auto& grad : grads_) all.push_back(grad.data());
  return all;
}

int32_t Seat::join(bool with_grads) {
  const std::vector<void*> given = grads();
  auto options = initialized<zero_join_options>();
  options.grads = given.data();
  options.grad_count = given.size();
  int32_t last_rank = -1;
  const zero_status status = zero_join(optim(), with_grads ? &options : nullptr, &last_rank);
  return status == ZERO_OK ? last_rank : status;
}

::testing::AssertionResult Seat::equals(const std::vector<std::vector<float>>& params) const {
  for (size_t i = 0; i < params.size(); i++) {
    for (size_t k = 0; k < params[i].size(); k++) {
      if (std::memcmp(&params[i][k], &params_[i][k], sizeof(float)) == 0) continue;
      return ::testing::AssertionFailure()
             << "rank " << rank() << " has " << params_[i][k] << " in element " << k
             << " of parameter " << i << ", not " << params[i][k];
    }
  }
  return ::testing::AssertionSuccess();
}

void on_seats(CommKind kind, const Uneven& run, const std::function<void(Seat&, int)>& body) {
  on_ranks(kind, run.world, [&](zero_comm* comm, int rank) {
    Seat seat(run, comm);
    body(seat, rank);
  });
}

void on_seats_of_each_comm(const Uneven& run, const std::function<void(Seat&, int)>& body) {
  for (const CommKind kind : kCommKinds) on_seats(kind, run, body);
}

}  // namespace zero::test
