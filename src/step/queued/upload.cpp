// SPDX-License-Identifier: Apache-2.0
#include "step/queued/upload.h"

#include <cstring>

namespace zero::queued {

Result<Upload> Upload::create(const std::shared_ptr<Comm>& comm) {
  Upload upload;
  upload.comm_ = comm;
  for (Slot& slot : upload.slots_) slot.read = ZERO_TRY(make_event(comm->device()));
  return upload;
}

/// Until the device has read what was put there last.
Status Upload::await(const Slot& slot) const {
  return zero::await(*comm_->device(), slot.read.handle(), patience_ms(*comm_), "reading a table",
                     [this] { return comm_->check(); });
}

Status Upload::reserve(size_t bytes) {
  for (Slot& slot : slots_) {
    if (slot.buffer.bytes() >= bytes) continue;
    ZERO_TRY(await(slot));
    slot.buffer = ZERO_TRY(HostBuffer::allocate(comm_->device(), bytes, "tables on their way"));
  }
  return Status();
}

Status Upload::put(StreamHandle stream, void* to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return Status();
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  ZERO_TRY(await(slot));
  std::memcpy(slot.buffer.data(), bytes.data(), bytes.size());
  Device& device = *comm_->device();
  ZERO_TRY(device.copy(stream, to, slot.buffer.data(), bytes.size()));
  return device.record(slot.read.handle(), stream);
}

}  // namespace zero::queued
