// SPDX-License-Identifier: Apache-2.0
#include "step/queued/upload.h"

#include <cstring>

namespace zero::queued {

Result<Upload> Upload::create(const std::shared_ptr<Device>& device) {
  Upload upload;
  upload.device_ = device;
  for (Slot& slot : upload.slots_) slot.read = ZERO_TRY(make_event(device));
  return upload;
}

Status Upload::reserve(size_t bytes) {
  for (Slot& slot : slots_) {
    if (slot.buffer.bytes() >= bytes) continue;
    // The old buffer may still be read: its event is waited for when it is let go.
    ZERO_TRY(await(*device_, slot.read.handle(), 60'000, "reading a table"));
    slot.buffer = ZERO_TRY(HostBuffer::allocate(device_, bytes, "tables on their way"));
  }
  return Status();
}

Status Upload::put(StreamHandle stream, void* to, std::span<const std::byte> bytes,
                   int64_t timeout_ms) {
  if (bytes.empty()) return Status();
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  ZERO_TRY(await(*device_, slot.read.handle(), timeout_ms, "reading a table"));
  std::memcpy(slot.buffer.data(), bytes.data(), bytes.size());
  ZERO_TRY(device_->copy(stream, to, slot.buffer.data(), bytes.size()));
  return device_->record(slot.read.handle(), stream);
}

}  // namespace zero::queued
