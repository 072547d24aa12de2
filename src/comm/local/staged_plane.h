// SPDX-License-Identifier: Apache-2.0
// Transfers gradients and parameters between devices that cannot access each other's memory, in
// chunks through host memory that all ranks map.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/comm.h"
#include "comm/local/arena.h"
#include "comm/local/gates.h"

namespace zero::local {

/// Each rank has two slots, for even and odd chunks. For each chunk, every rank copies its data
/// into a slot, the hosts meet, and each rank reads what it needs from all slots. A slot is reused
/// two chunks later. By then all ranks have reached the meeting in between, so they have read the
/// old chunk. Calls return while their last copies are still queued. Used inside a call of the
/// comm.
class StagedPlane final : public QueuedPlane {
 public:
  static constexpr const char* kStaged = "a chunk is in the host's memory before others take it";
  static constexpr const char* kTaken = "a chunk is taken before another comes in its place";

  /// `slots` has the given layout, with a part for each rank. Each part has room for at least 256
  /// bytes for every rank. `moved` counts bytes copied into and out of `slots`. It must outlive
  /// this.
  static Result<std::unique_ptr<StagedPlane>> open(std::shared_ptr<Device> device, int32_t rank,
                                                   std::unique_ptr<HostMeeting> meeting,
                                                   std::shared_ptr<Mapping> slots,
                                                   const ArenaLayout& layout,
                                                   std::atomic<int64_t>& moved);
  ~StagedPlane() override;

  using QueuedPlane::all_gather;
  using QueuedPlane::reduce_scatter;
  /// Sums in rank order.
  Status reduce_scatter(std::span<const Scattered> all, void* stream) override;
  Status reduce(SumTypes types, std::span<const Summed> all, void* stream) override;
  Status all_gather(std::span<const Gathered> all, void* stream) override;
  Status broadcast(std::span<const Sent> all, void* stream) override;

 private:
  StagedPlane(std::shared_ptr<Device> device, int32_t rank, std::unique_ptr<HostMeeting> meeting,
              std::shared_ptr<Mapping> slots, const ArenaLayout& layout,
              std::atomic<int64_t>& moved)
      : device_(std::move(device)),
        layout_(layout),
        rank_(static_cast<size_t>(rank)),
        meeting_(std::move(meeting)),
        slots_(std::move(slots)),
        moved_(moved) {}

  std::byte* slot(size_t rank, size_t chunk) const;
  /// Calls put(i), and take(i) after the meeting, for each chunk. Calls put(i + 1) before take(i).
  template <class Put, class Take>
  Status pass(size_t chunks, StreamHandle stream, const char* phase, const Put& put,
              const Take& take);
  Status copy(StreamHandle stream, void* to, const void* from, size_t bytes);
  /// The part of each slot that is summed: its bytes in a chunk, its position in strides, and
  /// whether this rank sums it.
  struct SlotPart {
    size_t bytes, place;
    bool owns;
  };
  template <class Put>
  Status add_up(SumTypes types, void* recv, size_t count, const SlotPart& slot_part,
                StreamHandle stream, const Put& put);
  template <class Place>
  Status give_out(const void* mine, size_t bytes, StreamHandle stream, const char* phase,
                  const Place& place_of);
  std::byte* sums_of(size_t chunk) const;
  const std::byte* sum(SumTypes types, size_t chunk, size_t part, size_t count) const;

  const std::shared_ptr<Device> device_;
  const ArenaLayout layout_;
  const size_t rank_;
  const size_t world_ = static_cast<size_t>(layout_.slices);
  const size_t slot_bytes_ = layout_.bytes / 2 / kLine * kLine;
  const size_t stride_ = slot_bytes_ / world_ / kLine * kLine;  // between parts of different ranks
  const std::unique_ptr<HostMeeting> meeting_;
  const std::shared_ptr<Mapping> slots_;
  std::atomic<int64_t>& moved_;
  OpenedHost opened_;
  HostBuffer sums_;    // for even and odd chunks
  Event taken_;        // recorded after the copies of the last call
  size_t chunks_ = 0;  // number so far, the same on every rank
};

}  // namespace zero::local
