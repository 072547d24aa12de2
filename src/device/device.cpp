// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "base/os.h"
#include "base/text.h"

namespace zero {

Result<Stream> make_stream(const std::shared_ptr<Device>& device) {
  return Stream(device, ZERO_TRY(device->make_stream()));
}

Result<Event> make_event(const std::shared_ptr<Device>& device) {
  return Event(device, ZERO_TRY(device->make_event()));
}

Result<OpenedHost> open_host(const std::shared_ptr<Device>& device, void* memory, size_t bytes) {
  return OpenedHost(device, ZERO_TRY(device->open_host(memory, bytes)));
}

Status clear(const std::shared_ptr<Device>& device, void* memory, size_t bytes,
             std::string_view what) {
  constexpr int64_t kTimeoutMs = 60'000;
  if (bytes == 0) return Status();
  const Stream stream = ZERO_TRY(zero::make_stream(device));
  const Event filled = ZERO_TRY(zero::make_event(device));
  ZERO_TRY(device->fill(stream.handle(), memory, 0, bytes));
  // Once more if it fails: whoever gives the memory back does not wait for what is queued.
  Status done = device->record(filled.handle(), stream.handle());
  if (!done.ok()) (void)device->record(filled.handle(), stream.handle());
  for (int tries = 0; tries < 2; tries++) {
    const Status awaited = await_end(*device, filled.handle(), kTimeoutMs, text("filling ", what));
    if (done.ok()) done = awaited;
    if (awaited.ok() || awaited.code() == ZERO_ERR_TIMEOUT) break;
  }
  return done;
}

Result<DeviceMemory> DeviceMemory::allocate(const std::shared_ptr<Device>& device, size_t bytes,
                                            std::string_view what) {
  if (bytes == 0) return DeviceMemory();
  return DeviceMemory(device, ZERO_TRY(device->allocate(bytes, what)), bytes);
}

Result<DeviceMemory> DeviceMemory::allocate_zeroed(const std::shared_ptr<Device>& device,
                                                   size_t bytes, std::string_view what) {
  DeviceMemory memory = ZERO_TRY(allocate(device, bytes, what));
  ZERO_TRY(clear(device, memory.data(), bytes, what));
  return memory;
}

Result<HostBuffer> HostBuffer::allocate(const std::shared_ptr<Device>& device, size_t bytes,
                                        std::string_view what) {
  if (bytes == 0) return HostBuffer();
  return HostBuffer(device, ZERO_TRY(device->allocate_host(bytes, what)), bytes);
}

Result<SharedBlock> SharedBlock::allocate_zeroed(const std::shared_ptr<Device>& device,
                                                 size_t bytes, std::string_view what) {
  SharedBlock block(device, ZERO_TRY(device->allocate_shared(bytes, what)));
  ZERO_TRY(clear(device, block.data(), bytes, what));
  return block;
}

Result<SharedBlock> SharedBlock::map(const std::shared_ptr<Device>& device, int fd, size_t bytes,
                                     std::string_view what) {
  return SharedBlock(device, ZERO_TRY(device->map_shared(fd, bytes, what)));
}

Status await(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
             const std::function<Status()>& stop) {
  constexpr int64_t kSpinNs = 50'000;
  const int64_t start_ns = now_ns();
  while (!ZERO_TRY(device.done(event))) {
    if (stop) ZERO_TRY(stop());
    const int64_t waited_ns = now_ns() - start_ns;
    if (waited_ns >= timeout_ms * 1'000'000)
      return Status(ZERO_ERR_TIMEOUT,
                    text("the device did not end ", what, " within ", timeout_ms, " ms"));
    // Wait: a slice of timeout_ms.
    if (waited_ns >= kSpinNs) os().poll(nullptr, 0, waited_ns < 20 * kSpinNs ? 0 : 1);
  }
  return Status();
}

Status await_end(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
                 const std::function<Status()>& stop) {
  constexpr int64_t kEndMs = 10'000;
  Status ended = await(device, event, timeout_ms, what, stop);
  if (ended.ok()) return ended;
  const bool late = ended.code() == ZERO_ERR_TIMEOUT;
  if (late || !await(device, event, kEndMs, what).ok()) device.give_up();
  return ended;
}

}  // namespace zero
