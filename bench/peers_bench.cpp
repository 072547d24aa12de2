// SPDX-License-Identifier: Apache-2.0
// The kernel of a step between GPUs of one host, on one GPU. It sums the gradients of 2, 4 and 8
// ranks, updates one rank's share and writes the parameters of all, which are all in this GPU's
// memory. It is compared with the copy rate of the same GPU in the same run.
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "device_clock.h"
#include "kernels/launches.h"
#include "rules/list.h"
#include "zero.h"

namespace bench {
namespace {

using zero::Device;
using zero::DeviceMemory;
using zero::DType;
using zero::Master;

constexpr int kRounds = 25;
constexpr double kRoundSeconds = 0.05;  // a round has enough launches to fill this time
constexpr int64_t kElements = int64_t{1} << 25;
constexpr size_t kCopied = size_t{1} << 30;

struct Kind {
  const char* name;
  DType param;  // also of gradients
  Master master;
  size_t kept_bytes;  // per element, in addition to the parameter
  double state;       // bytes of its own that one rank reads and writes per element
};
constexpr Kind kKinds[] = {
    {"fp32", DType::f32, Master::param, 0, 4 + 16},
    {"bf16+master", DType::bf16, Master::full, 4, 8 + 16},
    {"bf16+rem", DType::bf16, Master::remainder, 2, 2 + 4 + 16},
};

/// Gradients are read, and parameters written, once for each rank.
double bytes_of(const Kind& kind, int ranks) {
  return kind.state + 2.0 * ranks * static_cast<double>(size_of(kind.param));
}

/// One rank's share of a step of `ranks`, with the memory that it reads and writes.
class Share {
 public:
  Share(const std::shared_ptr<Device>& device, const Kind& kind, int ranks) : device_(device) {
    const size_t bytes = size_of(kind.param) * kElements;
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> params;
    for (int rank = 0; rank < ranks; rank++) {
      sources.push_back(memory(bytes, kind.param != DType::f32, static_cast<uint64_t>(rank) + 10));
      params.push_back(memory(bytes, kind.param != DType::f32, 2));
    }
    zero::launch::RunRow run{};
    run.param = params[0];
    run.kept = kind.kept_bytes == 0 ? nullptr
                                    : memory(kind.kept_bytes * kElements, kind.kept_bytes == 2, 3);
    run.slots[0] = zeros(sizeof(float) * kElements);
    run.slots[1] = zeros(sizeof(float) * kElements);
    run.count = kElements;
    std::vector<zero::launch::Tile> tiles;
    for (int64_t at = 0; at < kElements; at += zero::launch::kTileElements)
      tiles.push_back({0, static_cast<uint32_t>(tiles.size())});
    const zero::Rule& rule = *zero::find_rule(ZERO_OPTIMIZER_ADAMW);
    std::vector<double> settings;
    for (const zero::Setting& setting : rule.settings) settings.push_back(setting.initial);
    const zero::Scalars scalars = rule.prepare({settings.data(), 1, 0, 1.0 / ranks});
    const zero::StepState state{};
    launch_ = {.format = {.param = kind.param, .grad = kind.param, .master = kind.master},
               .optimizer = ZERO_OPTIMIZER_ADAMW,
               .width = static_cast<uint32_t>(ranks),
               .targets_width = static_cast<uint32_t>(ranks) - 1,
               .count = static_cast<uint32_t>(tiles.size()),
               .tiles = table(std::span<const zero::launch::Tile>(tiles)),
               .runs = table(std::span<const zero::launch::RunRow>(&run, 1)),
               .sources = table(std::span<const std::byte* const>(sources)),
               .targets = table(std::span<std::byte* const>(params).subspan(1)),
               .scalars = table(std::span<const zero::Scalars>(&scalars, 1)),
               .state = table(std::span<const zero::StepState>(&state, 1))};
    Clock(device, nullptr).wait();  // other streams do not wait for the stream of these copies
  }

  void update(void* stream) const { must(device_->launch(stream, launch_)); }

 private:
  std::byte* zeros(size_t bytes) {
    blocks_.push_back(must(DeviceMemory::allocate_zeroed(device_, bytes, "a rank's memory")));
    return blocks_.back().data();
  }
  std::byte* memory(size_t bytes, bool halves, uint64_t seed) {
    std::byte* const made = zeros(bytes);
    fill(*device_, made, bytes, halves, seed);
    return made;
  }
  template <class Entry>
  Entry* table(std::span<Entry> entries) {
    std::byte* const made = zeros(entries.size_bytes());
    must(device_->copy(nullptr, made, entries.data(), entries.size_bytes()));
    return reinterpret_cast<Entry*>(made);
  }

  std::shared_ptr<Device> device_;
  std::vector<DeviceMemory> blocks_;
  zero::launch::Update launch_;
};

void compare(const std::shared_ptr<Device>& device) {
  const DeviceMemory from = must(DeviceMemory::allocate(device, kCopied, "a copy"));
  const DeviceMemory to = must(DeviceMemory::allocate(device, kCopied, "a copy"));
  fill(*device, from.data(), kCopied, false, 1);
  const zero::Stream stream = must(make_stream(device));
  Clock clock(device, stream.handle());
  std::printf("%-12s %6s %10s %9s %8s %8s\n", "case", "ranks", "ms", "GB/s", "copy", "of copy");
  for (const Kind& kind : kKinds) {
    for (int ranks : {1, 2, 4, 8}) {
      const Share share(device, kind, ranks);
      const auto update = [&] { share.update(stream.handle()); };
      const int repeats = clock.repeats(kRoundSeconds, update);
      std::vector<double> updates, copies;
      for (int round = 0; round < kRounds; round++) {
        updates.push_back(clock.time(repeats, update).device);
        copies.push_back(
            clock
                .time(4,
                      [&] { must(device->copy(stream.handle(), to.data(), from.data(), kCopied)); })
                .device);
      }
      const double copy = 2.0 * kCopied / median(copies);
      const double rate = bytes_of(kind, ranks) * kElements / median(updates);
      std::printf("%-12s %6d %10.4f %9.0f %8.0f %7.0f%%\n", kind.name, ranks, median(updates) * 1e3,
                  rate * 1e-9, copy * 1e-9, 100 * rate / copy);
      std::fflush(stdout);
    }
  }
}

int run() {
  zero::Result<std::shared_ptr<Device>> opened = zero::open_cuda(0);
  if (!opened.ok()) {
    std::printf("skipped: %s\n", opened.failure().text().c_str());
    return 77;
  }
  std::printf("%s\n", zero_build_info());
  compare(*opened);
  return 0;
}

}  // namespace
}  // namespace bench

int main() { return bench::run(); }
