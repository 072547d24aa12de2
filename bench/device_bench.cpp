// SPDX-License-Identifier: Apache-2.0
// A whole zero_step of one rank on a GPU, as calls and as launches of a captured graph, compared
// with the copy rate of the same GPU in the same run. At least 20 rounds in turn, with random
// numbers.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "device_clock.h"
#include "report.h"
#include "support/cuda_graph.h"
#include "workloads.h"
#include "zero.h"

namespace bench {
namespace {

using zero::Device;
using zero::DeviceMemory;

constexpr int kRounds = 25;
constexpr double kRoundSeconds = 0.05;  // a round has enough steps to fill this time

struct Kind {
  const char* name;
  int32_t dtype;
  int32_t master;
  double bytes;  // that AdamW reads and writes per element
};
constexpr Kind kKinds[] = {
    {"fp32", ZERO_FLOAT32, ZERO_MASTER_FLOAT32, 28},
    {"bf16+master", ZERO_BFLOAT16, ZERO_MASTER_FLOAT32, 28},
    {"bf16+rem", ZERO_BFLOAT16, ZERO_MASTER_REMAINDER, 26},
};

class Subject {
 public:
  Subject(zero_comm* comm, const std::shared_ptr<Device>& device, void* stream,
          const std::vector<int64_t>& sizes, const Kind& kind)
      : stream_(stream) {
    const size_t element = kind.dtype == ZERO_FLOAT32 ? 4 : 2;
    zero_options options;
    ZERO_INIT(options);
    options.master = kind.master;
    must(zero_create(&optim_, comm, &options), "zero_create");
    std::vector<zero_param> params(sizes.size());
    std::vector<std::string> names(sizes.size());
    size_t end = 0;
    for (size_t i = 0; i < sizes.size(); i++) {
      ZERO_INIT(params[i]);
      names[i] = "p" + std::to_string(i);
      params[i].name = names[i].c_str();
      params[i].shape = &sizes[i];
      params[i].ndim = 1;
      params[i].dtype = kind.dtype;
      params[i].flags = ZERO_PARAM_PADDED;
      elements_ += sizes[i];
      end += (static_cast<size_t>(sizes[i]) + 15) / 16 * 16 * element;
    }
    for (void** arena : {&data_, &grads_})
      must(zero_arena_alloc(comm, end, ZERO_MEMORY_PER_RANK, arena), "zero_arena_alloc");
    size_t at = 0;
    for (size_t i = 0; i < sizes.size(); i++) {
      params[i].data = static_cast<std::byte*>(data_) + at;
      params[i].grad = static_cast<std::byte*>(grads_) + at;
      at += (static_cast<size_t>(sizes[i]) + 15) / 16 * 16 * element;
    }
    const bool halves = kind.dtype == ZERO_BFLOAT16;
    fill(*device, static_cast<std::byte*>(data_), end, halves, 1);
    fill(*device, static_cast<std::byte*>(grads_), end, halves, 2);
    must(zero_register_params(optim_, nullptr, params.data(), params.size(), nullptr), "register");
    must(zero_broadcast_params(optim_, 0, nullptr), "zero_broadcast_params");
  }
  ~Subject() {
    zero_free(optim_);
    zero_arena_free(data_);
    zero_arena_free(grads_);
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  void step() {
    zero_step_options with;
    ZERO_INIT(with);
    with.stream = stream_;
    must(zero_step(optim_, &with), "zero_step");
  }
  /// Each launch of the graph is a step.
  std::shared_ptr<void> capture() {
    must(zero::test::begin_cuda_capture(stream_));
    step();
    return must(zero::test::end_cuda_capture(stream_));
  }
  double elements() const { return static_cast<double>(elements_); }

 private:
  void* const stream_;
  zero_optim* optim_ = nullptr;
  void *data_ = nullptr, *grads_ = nullptr;
  int64_t elements_ = 0;
};

/// The results of all rounds for one way to take steps.
struct Found {
  std::vector<double> steps, hosts;

  void add(const Times& times) {
    steps.push_back(times.device);
    hosts.push_back(times.host);
  }
  void print(const Subject& subject, const Kind& kind, size_t tensors, const char* way,
             double copy) const {
    const double rate = kind.bytes * subject.elements() / median(steps);
    std::printf("%-10.0f %-12s %-8s %10zu %10.4f %9.1f %9.0f %8.0f %7.0f%%\n", subject.elements(),
                kind.name, way, tensors, median(steps) * 1e3, median(hosts) * 1e6, rate * 1e-9,
                copy * 1e-9, 100 * rate / copy);
    std::fflush(stdout);
  }
};

/// `looks`: only checks whether there is a GPU.
int run(bool looks) {
  zero::Result<std::shared_ptr<Device>> opened = zero::open_cuda(0);
  if (!opened.ok()) {
    std::printf("skipped: %s\n", opened.failure().text().c_str());
    return 77;
  }
  if (looks) return 0;
  const std::shared_ptr<Device> device = *opened;
  std::printf("%s\n%-10s %-12s %-8s %10s %10s %9s %9s %8s %8s\n", zero_build_info(), "elements",
              "case", "by", "tensors", "ms", "host us", "GB/s", "copy", "of copy");
  zero_comm_options where;
  ZERO_INIT(where);
  where.device = ZERO_DEVICE_CUDA;
  zero_comm* comm = nullptr;
  must(zero_comm_create_solo(&comm, &where), "zero_comm_create_solo");
  constexpr size_t kCopied = size_t{1} << 30;
  const DeviceMemory from = must(DeviceMemory::allocate(device, kCopied, "a copy"));
  const DeviceMemory to = must(DeviceMemory::allocate(device, kCopied, "a copy"));
  fill(*device, from.data(), kCopied, false, 3);
  const zero::Stream stream = must(make_stream(device));
  Clock clock(device, stream.handle());
  std::vector<std::vector<int64_t>> lists = {{1 << 20}, {1 << 24}, {1 << 26}};
  for (const Workload& work : {flat(), small(), gpt2()}) {
    std::vector<int64_t> sizes;
    for (const Tensor& tensor : work.tensors) sizes.push_back(tensor.count);
    lists.push_back(std::move(sizes));
  }
  for (const std::vector<int64_t>& sizes : lists) {
    for (const Kind& kind : kKinds) {
      Subject subject(comm, device, stream.handle(), sizes, kind);
      const auto step = [&] { subject.step(); };
      const int steps = clock.repeats(kRoundSeconds, step);
      const std::shared_ptr<void> graph = subject.capture();
      const auto launch = [&] { must(zero::test::launch_cuda_graph(graph, stream.handle())); };
      const int replays = clock.repeats(kRoundSeconds, launch);
      const auto copy_all = [&] {
        must(device->copy(stream.handle(), to.data(), from.data(), kCopied));
      };
      Found calls, launches;
      std::vector<double> copies;
      for (int round = 0; round < kRounds; round++) {
        calls.add(clock.time(steps, step));
        launches.add(clock.time(replays, launch));
        copies.push_back(clock.time(4, copy_all).device);
      }
      const double copy = 2.0 * kCopied / median(copies);
      calls.print(subject, kind, sizes.size(), "calls", copy);
      launches.print(subject, kind, sizes.size(), "launches", copy);
    }
  }
  zero_comm_free(comm);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int count, char** words) {
  return bench::run(count == 2 && std::string(words[1]) == "--look");
}
