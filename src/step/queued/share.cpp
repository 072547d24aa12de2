// SPDX-License-Identifier: Apache-2.0
// What travels whole from the rank that has it to all others, and is waited for.
#include <algorithm>
#include <vector>

#include "device/window.h"
#include "step/queued/queue.h"
#include "step/queued/step.h"

namespace zero::queued {
namespace {

Status queue_all(Optimizer& optim, const std::vector<Sent>& all, std::string_view what) {
  const std::shared_ptr<Device>& device = optim.comm->device();
  const HostShare host(optim);
  const Stream travels = ZERO_TRY(make_stream(device));
  const Event given = ZERO_TRY(make_event(device));
  ZERO_TRY(device->record(given.handle(), step_memory(optim).stream));
  ZERO_TRY(device->wait(travels.handle(), given.handle(), order::kShared));
  QueuedPlane* const plane = optim.comm->queued();
  for (const Event* other : {&plane->reduced, &plane->gathered}) {
    if (other->handle() != nullptr)
      ZERO_TRY(device->wait(travels.handle(), other->handle(), order::kApart));
  }
  ZERO_TRY(plane->broadcast(all, travels.handle()));
  return finish(optim, travels.handle(), what);
}

/// Piece by piece, where no work of a device sends anything.
Status pass_through_host(Call& call, Optimizer& optim, const std::vector<Sent>& all,
                         std::string_view what) {
  ZERO_TRY(finish(optim, step_memory(optim).stream, what));
  Window window = ZERO_TRY(Window::create(optim.comm->device(), optim.comm->options().timeout_ms));
  std::vector<std::byte> piece(static_cast<size_t>(window.most(1)));
  for (const Sent& one : all) {
    for (size_t done = 0; done < one.bytes; done += piece.size()) {
      const std::span<std::byte> part(piece.data(), std::min(piece.size(), one.bytes - done));
      const bool sends = one.root == call.rank();
      if (sends)
        ZERO_TRY(window.read(part.data(), static_cast<std::byte*>(one.data) + done, part.size()));
      ZERO_TRY(call.broadcast("tensor", part, one.root));
      if (!sends)
        ZERO_TRY(window.write(static_cast<std::byte*>(one.data) + done, part.data(), part.size()));
      call.progress();
    }
  }
  return Status();
}

Status send(Call& call, Optimizer& optim, std::vector<Sent> all, std::string_view what) {
  std::erase_if(all, [](const Sent& one) { return one.bytes == 0; });
  const Status status = optim.comm->queued() != nullptr ? queue_all(optim, all, what)
                                                        : pass_through_host(call, optim, all, what);
  return status.ok() ? status : call.abort(status, "broadcast");
}

}  // namespace

Status broadcast_params(Call& call, Optimizer& optim, int32_t root) {
  std::vector<Sent> all;
  for (const Param& param : optim.params) all.push_back({param.data, param.bytes(), root});
  return send(call, optim, std::move(all), "the parameters of a root");
}

Status broadcast_buffers(Call& call, Optimizer& optim, int32_t root) {
  std::vector<Sent> all;
  for (const Buffer& buffer : optim.buffers) all.push_back({buffer.data, buffer.bytes(), root});
  return send(call, optim, std::move(all), "the buffers of a root");
}

Status share_params(Call& call, Optimizer& optim) {
  const Status rounded = round_share(optim);
  if (!rounded.ok()) return call.abort(rounded, "broadcast");
  if (optim.world() == 1) return Status();
  std::vector<Sent> all;
  for (int64_t param = 0; param < optim.plan.params(); param++) {
    const Param& of = optim.params[static_cast<size_t>(param)];
    for (const OwnedSegment& part : optim.plan.segments_of(param)) {
      const size_t bytes = static_cast<size_t>(part.segment.count) * size_of(of.dtype);
      all.push_back({of.element(part.segment.first), bytes, part.owner});
    }
  }
  return send(call, optim, std::move(all), "the parameters of their owners");
}

}  // namespace zero::queued
