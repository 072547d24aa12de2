// SPDX-License-Identifier: Apache-2.0
// The comm of ranks with one GPU each, on any number of hosts. NCCL transfers gradients and
// parameters, and a tree of connections carries control messages.
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

/// The ranks, resources and options for forming a comm.
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
  /// NCCL starts a thread for each call, which then costs about 0.2 ms of host time. With buckets
  /// of the usual size, this many transfers take longer than that on any link.
  static constexpr size_t kAtOnce = 8;

  using TcpComm::all_gather;  // of host memory
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
  /// Calls call(handle, one) for each element, in groups. Each group is one launch.
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
  std::set<uint32_t> mapped_;  // arenas passed to map_arena(), whether or not it succeeded
};

inline constexpr const char* kSameId = "passed the same id";

/// Connects the ranks of `channels` with an Offer that is sent through NCCL itself, and returns the
/// comm. Collective. A failure ends the channels. If the channels themselves failed, the message
/// may ask whether all ranks have done what `come` says.
Result<std::shared_ptr<Comm>> take_seat(const Formation& of,
                                        Result<std::unique_ptr<Channels>> channels,
                                        const char* come = kSameId);

}  // namespace zero::nccl
