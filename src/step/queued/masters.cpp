// SPDX-License-Identifier: Apache-2.0
// What is rare and waits until it is done: masters from parameters, parameters from a root.
#include <algorithm>

#include "step/queued/step.h"
#include "step/queued/upload.h"
#include "step/queued/walk.h"

namespace zero::queued {
namespace {

/// Moves of one kind, and where their tiles begin in the table.
struct Kind {
  DType from;
  std::vector<launch::Move> moves;
  std::vector<launch::Tile> tiles;
  size_t moves_at = 0, tiles_at = 0;
};

/// The masters of a share in fp32, by the type of their parameters.
std::vector<Kind> full_masters(const Optimizer& optim, size_t first_section) {
  std::vector<Kind> kinds;
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    if (static_cast<size_t>(segment.section) < first_section ||
        optim.master_of(section) != Master::full)
      continue;
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const Kind& one) { return one.from == section.dtype; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{section.dtype, {}, {}});
    const auto number = static_cast<uint32_t>(kind->moves.size());
    for (int64_t at = 0; at < segment.count; at += launch::kTileElements)
      kind->tiles.push_back({number, static_cast<uint32_t>(at / launch::kTileElements)});
    kind->moves.push_back({optim.params[static_cast<size_t>(segment.param)].element(segment.first),
                           optim.slot(kMasterSlot, segment.section, segment.share), segment.count});
  }
  return kinds;
}

Status clear_remainders(const Optimizer& optim, Device& device, StreamHandle stream,
                        size_t first_section) {
  for (const Segment& segment : optim.segments()) {
    const Section& section = optim.plan.section(segment.section);
    if (static_cast<size_t>(segment.section) < first_section ||
        optim.master_of(section) != Master::remainder)
      continue;
    ZERO_TRY(device.fill(stream, optim.slot(kMasterSlot, segment.section, segment.share), 0,
                         static_cast<size_t>(segment.count) * sizeof(uint16_t)));
  }
  return Status();
}

Status finish(const Optimizer& optim, StreamHandle stream, std::string_view what) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  const Event done = ZERO_TRY(make_event(device));
  ZERO_TRY(device->record(done.handle(), stream));
  const auto stop = [&] { return optim.comm->aborted() ? optim.comm->failure_status() : Status(); };
  return await(*device, done.handle(), optim.comm->options().timeout_ms, what, stop);
}

}  // namespace

Status take_masters(Optimizer& optim, size_t first_section) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  const StreamHandle stream = step_memory(optim).stream;
  ZERO_TRY(clear_remainders(optim, *device, stream, first_section));
  std::vector<Kind> kinds = full_masters(optim, first_section);
  Blob blob;
  for (Kind& kind : kinds) {
    kind.moves_at = blob.add<launch::Move>(kind.moves);
    kind.tiles_at = blob.add<launch::Tile>(kind.tiles);
  }
  const size_t bytes = blob.bytes().size();
  const DeviceMemory table = ZERO_TRY(DeviceMemory::allocate(device, bytes, "a table of masters"));
  const HostBuffer sent = ZERO_TRY(HostBuffer::allocate(device, bytes, "a table of masters"));
  if (bytes > 0) {
    std::memcpy(sent.data(), blob.bytes().data(), bytes);
    ZERO_TRY(device->copy(stream, table.data(), sent.data(), bytes));
  }
  for (const Kind& kind : kinds) {
    ZERO_TRY(device->launch(
        stream, launch::Moves{
                    .from = kind.from,
                    .to = DType::f32,
                    .count = static_cast<uint32_t>(kind.tiles.size()),
                    .tiles = reinterpret_cast<const launch::Tile*>(table.data() + kind.tiles_at),
                    .moves = reinterpret_cast<const launch::Move*>(table.data() + kind.moves_at)}));
  }
  return finish(optim, stream, "taking masters");
}

Status broadcast_params(Call& call, Optimizer& optim, int32_t root) {
  StepMemory& memory = step_memory(optim);
  QueuedPlane* const plane = optim.comm->queued();
  const auto queue = [&]() -> Status {
    const std::shared_ptr<Device>& device = optim.comm->device();
    const Stream travels = ZERO_TRY(make_stream(device));
    const Event given = ZERO_TRY(make_event(device));
    ZERO_TRY(device->record(given.handle(), memory.stream));
    ZERO_TRY(device->wait(travels.handle(), given.handle(), order::kShared));
    for (const Param& param : optim.params) {
      if (param.count == 0) continue;
      ZERO_TRY(plane->broadcast(param.data, param.bytes(), root, travels.handle()));
    }
    ZERO_TRY(finish(optim, travels.handle(), "sharing the parameters of a root"));
    return Status();
  };
  Status status = queue();
  return status.ok() ? status : call.abort(status, "broadcast");
}

}  // namespace zero::queued
