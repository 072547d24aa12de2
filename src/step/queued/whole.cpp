// SPDX-License-Identifier: Apache-2.0
// Infrequent work for which the host waits: setting master weights, rounding parameters, and
// sending whole tensors.

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "device/window.h"
#include "step/memory.h"
#include "step/queued/walk.h"

namespace zero::queued {
namespace {

/// Waits for the work queued on `stream`, because the caller may free memory that it uses. `what`
/// describes the work.
Status finish(const Optimizer& optim, StreamHandle stream, std::string_view what) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  const Event done = ZERO_TRY(make_event(device));
  ZERO_TRY(device->record(done.handle(), stream));
  const auto stop = [&] { return optim.comm->check(); };
  return await_end(*device, done.handle(), patience_ms(*optim.comm), what, stop);
}

/// Moves of one type to fp32.
struct Kind {
  DType from;
  DType rounded = DType::none;
  std::vector<launch::Move> moves{};
};

/// Runs the moves on `stream`, and waits for them.
Status move_all(const Optimizer& optim, StreamHandle stream, const std::vector<Kind>& kinds,
                std::string_view what) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  Copies copies;
  std::vector<Range> tiles;
  for (const Kind& kind : kinds) tiles.push_back(copies.add(kind.moves));
  Blob blob;
  const size_t moves_at = blob.add<launch::Move>(copies.moves);
  const size_t tiles_at = blob.add<launch::Tile>(copies.tiles);
  const size_t bytes = blob.bytes().size();
  const DeviceMemory table = ZERO_TRY(DeviceMemory::allocate(device, bytes, "a table of moves"));
  const HostBuffer sent = ZERO_TRY(HostBuffer::allocate(device, bytes, "a table of moves"));
  if (bytes > 0) {
    std::memcpy(sent.data(), blob.bytes().data(), bytes);
    ZERO_TRY(device->copy(stream, table.data(), sent.data(), bytes));
  }
  for (size_t i = 0; i < kinds.size(); i++) {
    const auto* const first = reinterpret_cast<const launch::Tile*>(table.data() + tiles_at);
    ZERO_TRY(device->launch(stream, launch::Moves{.from = kinds[i].from,
                                                  .to = DType::f32,
                                                  .rounded = kinds[i].rounded,
                                                  .count = tiles[i].count,
                                                  .tiles = first + tiles[i].first,
                                                  .moves = reinterpret_cast<const launch::Move*>(
                                                      table.data() + moves_at)}));
  }
  return finish(optim, stream, what);
}

}  // namespace

/// Sets full master weights with moves, one kind for each type of parameters. Sets remainders to
/// zero.
Status Walk::take_masters(size_t first_section) {
  std::vector<Kind> kinds;
  for (const Segment& segment : optim_.segments()) {
    const Section& of = section(segment.section);
    if (static_cast<size_t>(segment.section) < first_section) continue;
    std::byte* const to = optim_.slot(kMasterSlot, segment);
    const Master master = optim_.master_of(of);
    if (master == Master::remainder)
      ZERO_TRY(fill_zeros(to, static_cast<size_t>(segment.count) * master_bytes(master)));
    if (master != Master::full) continue;
    auto kind = std::ranges::find(kinds, of.dtype, &Kind::from);
    if (kind == kinds.end()) kind = kinds.insert(kind, {.from = of.dtype});
    std::byte* const from = optim_.values(segment);
    kind->moves.push_back({from, to, segment.count});
  }
  return move_all(optim_, stream(), kinds, "taking masters");
}

/// Rounds the parameters of this rank's share to the type in which they are sent.
Status Walk::round_share() {
  Kind rounds{DType::f32, optim_.options.share()};
  for (const Segment& segment : optim_.segments()) {
    const Section& section = optim_.plan.section(segment.section);
    if (optim_.shared(section) == section.dtype) continue;
    std::byte* const own = optim_.values(segment);
    rounds.moves.push_back({own, own, segment.count});
  }
  if (rounds.moves.empty()) return Status();
  return move_all(optim_, stream(), {std::move(rounds)}, "rounding parameters");
}

// ---- Transfers of whole tensors from the ranks that have them to all other ranks. They wait until
// the tensors have arrived.

/// Sends tensors with queued work on the device, or through the host if there is no plane.
Status Walk::send_whole(std::vector<Sent> all, std::string_view what) {
  std::erase_if(all, [](const Sent& one) { return one.bytes == 0; });
  const auto queue_all = [&]() -> Status {
    QueuedPlane* const plane = optim_.comm->queued();
    if (plane == nullptr) return send_through_host(all, what);
    const std::shared_ptr<Device>& device = optim_.comm->device();
    const HostShare host(optim_);
    const Stream travels = ZERO_TRY(make_stream(device));
    const Event given = ZERO_TRY(make_event(device));
    ZERO_TRY(order(stream(), given, travels.handle(), order::kShared));
    for (const Event* other : {&plane->reduced, &plane->gathered}) {
      if (other->handle() != nullptr)
        ZERO_TRY(device->wait(travels.handle(), other->handle(), order::kApart));
    }
    ZERO_TRY(plane->broadcast(all, travels.handle()));
    return finish(optim_, travels.handle(), what);
  };
  const Status status = queue_all();
  return status.ok() ? status : call_.abort(status, "broadcast");
}

/// Sends tensors in parts through the host.
Status Walk::send_through_host(const std::vector<Sent>& all, std::string_view what) {
  ZERO_TRY(finish(optim_, stream(), what));
  Window window =
      ZERO_TRY(Window::create(optim_.comm->device(), optim_.comm->options().timeout_ms));
  std::vector<std::byte> piece(static_cast<size_t>(window.most(1)));
  for (const Sent& one : all) {
    for (size_t done = 0; done < one.bytes; done += piece.size()) {
      const std::span<std::byte> part(piece.data(), std::min(piece.size(), one.bytes - done));
      const bool sends = one.root == call_.rank();
      if (sends)
        ZERO_TRY(window.read(part.data(), static_cast<std::byte*>(one.data) + done, part.size()));
      ZERO_TRY(call_.broadcast("tensor", part, one.root));
      if (!sends)
        ZERO_TRY(window.write(static_cast<std::byte*>(one.data) + done, part.data(), part.size()));
      call_.progress();
    }
  }
  return Status();
}

Status Walk::broadcast_params(int32_t root) {
  std::vector<Sent> all;
  for (const Param& param : optim_.params) all.push_back({param.data, param.bytes(), root});
  return send_whole(std::move(all), "the parameters of a root");
}

Status Walk::broadcast_buffers(int32_t root) {
  if (optim_.world() == 1 || optim_.buffers.empty()) return Status();
  std::vector<Sent> all;
  for (const Buffer& buffer : optim_.buffers) all.push_back({buffer.data, buffer.bytes(), root});
  return send_whole(std::move(all), "the buffers of a root");
}

Status Walk::share_params() {
  const Status rounded = round_share();
  if (!rounded.ok()) return call_.abort(rounded, "broadcast");
  if (optim_.world() == 1) return Status();
  std::vector<Sent> all;
  for (int64_t param = 0; param < optim_.plan.params(); param++) {
    const Param& of = optim_.param(param);
    for (const OwnedSegment& part : optim_.plan.segments_of(param)) {
      const size_t bytes = size_of(of.dtype, part.segment.count);
      all.push_back({of.element(part.segment.first), bytes, part.owner});
    }
  }
  return send_whole(std::move(all), "the parameters of their owners");
}

Status Walk::hash(std::span<const std::span<const std::byte>> parts, std::span<uint64_t> hashes) {
  ZERO_TRY(settle(optim_));
  ZERO_TRY(finish(optim_, stream(), "the parameters of the first step"));
  Windows* const windows = ZERO_TRY(windows_of(optim_));
  for (size_t i = 0; i < parts.size(); i++) {
    const std::byte* const shown = ZERO_TRY(windows->values.show(parts[i].data(), parts[i].size()));
    hashes[i] = hash64({shown, parts[i].size()});
    call_.progress();
  }
  return Status();
}

}  // namespace zero::queued
