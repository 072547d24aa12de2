// SPDX-License-Identifier: Apache-2.0
#include "comm/local/staged_plane.h"

#include <algorithm>

#include "base/float_environment.h"
#include "base/keep.h"
#include "base/text.h"
#include "kernels/kernels.h"

namespace zero::local {

Result<std::unique_ptr<StagedPlane>> StagedPlane::open(std::shared_ptr<Device> device, int32_t rank,
                                                       std::unique_ptr<HostMeeting> meeting,
                                                       std::shared_ptr<Mapping> slots,
                                                       const ArenaLayout& layout,
                                                       std::atomic<int64_t>& moved) {
  std::unique_ptr<StagedPlane> plane(new StagedPlane(std::move(device), rank, std::move(meeting),
                                                     std::move(slots), layout, moved));
  plane->opened_ =
      ZERO_TRY(open_host(plane->device_, plane->slots_->data(), plane->slots_->bytes()));
  plane->taken_ = ZERO_TRY(make_event(plane->device_));
  plane->sums_ = ZERO_TRY(HostBuffer::allocate(plane->device_, 2 * plane->slot_bytes_, "sums"));
  return plane;
}

/// Waits for the last copies, which still use the slots. They depend on no other rank.
StagedPlane::~StagedPlane() {
  constexpr int64_t kEndMs = 10'000;
  if (taken_.handle() == nullptr) return;
  const bool ended = succeeds([this] {
    return await_end(*device_, taken_.handle(), kEndMs, "copies through the host").ok();
  });
  if (!ended) keep_for_ever(slots_);
}

std::byte* StagedPlane::slot(size_t rank, size_t chunk) const {
  return slots_->data() + rank * layout_.slice + chunk % 2 * slot_bytes_;
}

Status StagedPlane::copy(StreamHandle stream, void* to, const void* from, size_t bytes) {
  moved_ += static_cast<int64_t>(bytes);
  return device_->copy(stream, to, from, bytes);
}

template <class Put, class Take>
Status StagedPlane::pass(size_t chunks, StreamHandle stream, const char* phase, const Put& put,
                         const Take& take) {
  if (chunks == 0) return {};
  // Another stream may still read chunks of the previous call.
  ZERO_TRY(device_->wait(stream, taken_.handle(), kTaken));
  const auto pass_all = [&]() -> Status {
    ZERO_TRY(put(size_t{0}, slot(rank_, chunks_)));
    for (size_t i = 0; i < chunks; i++) {
      ZERO_TRY(meeting_->meet(stream, phase, kStaged));
      if (i + 1 < chunks) ZERO_TRY(put(i + 1, slot(rank_, chunks_ + 1)));
      ZERO_TRY(take(i, chunks_));
      chunks_++;
    }
    return {};
  };
  Status passed = pass_all();
  // Record the event even if only a part was queued, and retry, because queued copies use slots.
  Status recorded = device_->record(taken_.handle(), stream);
  if (!recorded.ok()) (void)device_->record(taken_.handle(), stream);
  return passed.ok() ? recorded : passed;
}

Status StagedPlane::reduce_scatter(std::span<const Scattered> all, void* stream) {
  for (const Scattered& one : all) {
    const size_t element = size_of(one.types.from);
    const auto* const from = static_cast<const std::byte*>(one.send);
    const auto put = [&](size_t at, size_t count, std::byte* to) -> Status {
      for (size_t r = 0; r < world_; r++)
        ZERO_TRY(
            copy(stream, to + r * stride_, from + (r * one.count + at) * element, count * element));
      return {};
    };
    ZERO_TRY(add_up(one.types, one.recv, one.count, {stride_, rank_, true}, stream, put));
  }
  return {};
}

Status StagedPlane::reduce(SumTypes types, std::span<const Summed> all, void* stream) {
  for (const Summed& one : all) {
    const size_t element = size_of(types.from);
    const auto* const from = static_cast<const std::byte*>(one.send);
    const auto put = [&](size_t at, size_t count, std::byte* to) {
      return copy(stream, to, from + at * element, count * element);
    };
    const bool owns = rank_ == static_cast<size_t>(one.root);
    ZERO_TRY(add_up(types, one.recv, one.count, {slot_bytes_, 0, owns}, stream, put));
  }
  return {};
}

/// Computes sums of `count` elements in `recv`, if this rank owns them. put(at, count, to) copies
/// into a slot what other ranks need from this rank.
template <class Put>
Status StagedPlane::add_up(SumTypes types, void* recv, size_t count, const SlotPart& slot_part,
                           StreamHandle stream, const Put& put) {
  const size_t sum_element = size_of(types.sum);
  const size_t most = slot_part.bytes / std::max(size_of(types.from), sum_element);  // per chunk
  const auto part = [&](size_t i) { return std::min(most, count - i * most); };
  const auto result = [&](size_t i) {
    return static_cast<std::byte*>(recv) + i * most * sum_element;
  };
  const auto put_chunk = [&, first = chunks_](size_t i, std::byte* to) -> Status {
    ZERO_TRY(put(i * most, part(i), to));
    if (!types.adds || !slot_part.owns) return {};
    return copy(stream, sums_of(first + i), result(i), part(i) * sum_element);
  };
  const auto take = [&](size_t i, size_t chunk) -> Status {
    if (!slot_part.owns) return {};
    return copy(stream, result(i), sum(types, chunk, slot_part.place, part(i)),
                part(i) * sum_element);
  };
  return pass((count + most - 1) / most, stream, "gradients", put_chunk, take);
}

/// Returns the buffer in which the sums of a chunk are computed. It was copied out for the chunk
/// before the last, before the meeting of this chunk. If the sums accumulate, the previous values
/// were copied in for that meeting.
std::byte* StagedPlane::sums_of(size_t chunk) const {
  return sums_.data() + chunk % 2 * slot_bytes_;
}

/// Sums one part of all ranks' slots.
const std::byte* StagedPlane::sum(SumTypes types, size_t chunk, size_t part, size_t count) const {
  std::vector<const void*> parts;
  for (size_t r = 0; r < world_; r++) parts.push_back(slot(r, chunk) + part * stride_);
  const FloatEnvironment environment;
  const KernelTable& kernels = kernel_table(best_isa());
  if (types.adds) {
    fold(kernels, types.sum, types.from, sums_of(chunk), parts, count);
  } else {
    kernels.reduction(types.sum, types.from, Norm::none)(sums_of(chunk), parts.data(),
                                                         static_cast<int>(world_), count);
  }
  return sums_of(chunk);
}

Status StagedPlane::all_gather(std::span<const Gathered> all, void* stream) {
  for (const Gathered& one : all) {
    auto* const to = static_cast<std::byte*>(one.recv);
    std::byte* const own = to + rank_ * one.bytes;
    if (own != one.send) ZERO_TRY(device_->copy(stream, own, one.send, one.bytes));
    ZERO_TRY(give_out(one.send, one.bytes, stream, "parameters",
                      [&](size_t rank) { return to + rank * one.bytes; }));
  }
  return {};
}

Status StagedPlane::broadcast(std::span<const Sent> all, void* stream) {
  for (const Sent& one : all) {
    const auto sender = static_cast<size_t>(one.root);
    auto* const data = static_cast<std::byte*>(one.data);
    ZERO_TRY(give_out(rank_ == sender ? data : nullptr, one.bytes, stream, "broadcast",
                      [&](size_t rank) { return rank == sender ? data : nullptr; }));
  }
  return {};
}

/// Copies the `bytes` at `mine`, if this rank sends any, to the other ranks, and copies what each
/// other rank sends to place_of(rank), which is nullptr for a rank that sends nothing.
template <class Place>
Status StagedPlane::give_out(const void* mine, size_t bytes, StreamHandle stream, const char* phase,
                             const Place& place_of) {
  const auto part = [&](size_t i) { return std::min(slot_bytes_, bytes - i * slot_bytes_); };
  const auto put = [&](size_t i, std::byte* into) -> Status {
    if (mine == nullptr) return {};
    return copy(stream, into, static_cast<const std::byte*>(mine) + i * slot_bytes_, part(i));
  };
  const auto take = [&](size_t i, size_t chunk) -> Status {
    for (size_t r = 0; r < world_; r++)
      if (std::byte* const to = place_of(r); to != nullptr && r != rank_)
        ZERO_TRY(copy(stream, to + i * slot_bytes_, slot(r, chunk), part(i)));
    return {};
  };
  return pass((bytes + slot_bytes_ - 1) / slot_bytes_, stream, phase, put, take);
}

}  // namespace zero::local
