// SPDX-License-Identifier: Apache-2.0
// The comm of ranks that have a GPU each, on any number of hosts: NCCL carries gradients and
// parameters, a tree of connections carries the rest.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "comm/comm.h"
#include "comm/nccl/channel.h"
#include "comm/private_arena.h"
#include "comm/tcp/tcp.h"

namespace zero::nccl {

/// The ranks that a comm is formed of, the means, and the options.
struct Formation {
  const Library& library;
  std::shared_ptr<Device> device;
  int32_t rank, world;
  const CommOptions& options;
  Bounds bounds;
};

class NcclComm final : public tcp::TcpComm, private QueuedPlane {
 public:
  NcclComm(const Formation& of, std::unique_ptr<Channels> channels, tcp::Neighbours neighbours)
      : TcpComm(of.rank, of.world, of.options, of.device, std::move(neighbours)),
        library_(of.library),
        channels_(std::move(channels)) {}
  ~NcclComm() override;

  const char* kind() const override { return "nccl"; }
  QueuedPlane* queued() override { return this; }

  Status check() override;
  Failure failure() const override;
  void abort(const Failure& cause) override;

  bool sums_itself() const override { return false; }

  Status combine_bytes(std::span<std::byte> data, const Combine& combine,
                       const Patience& patience) override {
    return told(TcpComm::combine_bytes(data, combine, patience));
  }
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience& patience) override {
    return told(TcpComm::exchange_bytes(mine, all, patience));
  }
  Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                         const Patience& patience) override {
    return told(TcpComm::broadcast_bytes(data, root, patience));
  }

 protected:
  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override;

 private:
  /// NCCL begins a thread for each call, which then takes about 0.2 ms of the host. With buckets of
  /// the usual size this many take longer than that on any link.
  static constexpr size_t kAtOnce = 8;

  using TcpComm::all_gather;  // of the host's memory
  using TcpComm::reduce_scatter;
  Status reduce_scatter(std::span<const Scattered> all, void* stream) override;
  Status reduce(SumTypes types, std::span<const Summed> all, void* stream) override;
  Status all_gather(std::span<const Gathered> all, void* stream) override;
  Status broadcast(std::span<const Sent> all, void* stream) override;
  size_t at_once() const override { return kAtOnce; }
  Location mappable(const void* base) const override;
  Status map_arena(Use use, const Location& place) override;
  bool was_mapped(uint32_t arena) const override { return mapped_.count(arena) != 0; }

  Status queue(Channel& channel, const char* what, const std::function<int(Handle)>& call);
  /// Makes call(handle, one) for each of them, in groups. Each group is one launch.
  template <class One, class Call>
  Status queue_all(Channel& channel, const char* what, std::span<const One> all, const Call& call);
  std::shared_ptr<PrivateArena> arena_of(const Location& location) const;
  Bounds bounds();
  Status broken(Status problem, std::string_view phase);
  Status told(Status status);
  void end_channels();

  const Library& library_;
  const std::unique_ptr<Channels> channels_;
  std::atomic<bool> left_behind_{false};
  std::set<uint32_t> mapped_;  // arenas, whatever came of it
};

inline constexpr const char* kSameId = "passed the same id";

/// Collective over the ranks of `channels`: connects them, by an Offer that travels through NCCL
/// itself, and returns the seat. A failure has ended the channels. If the channels themselves
/// failed, the sentence may ask whether all ranks have done what `come` says.
Result<std::shared_ptr<Comm>> take_seat(const Formation& of,
                                        Result<std::unique_ptr<Channels>> channels,
                                        const char* come = kSameId);

}  // namespace zero::nccl
