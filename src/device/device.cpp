// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "base/os.h"
#include "base/text.h"

namespace zero {

Status clear(const std::shared_ptr<Device>& device, void* memory, size_t bytes,
             std::string_view what) {
  constexpr int64_t kTimeoutMs = 60'000;
  if (bytes == 0) return Status();
  const Stream stream = ZERO_TRY(make_stream(device));
  const Event filled = ZERO_TRY(make_event(device));
  ZERO_TRY(device->fill(stream.handle(), memory, 0, bytes));
  // Record again after a failure, because the release of the memory does not wait for queued work.
  Status done = device->record(filled.handle(), stream.handle());
  if (!done.ok()) (void)device->record(filled.handle(), stream.handle());
  for (int tries = 0; tries < 2; tries++) {
    const Status awaited = await_end(*device, filled.handle(), kTimeoutMs, text("filling ", what));
    if (done.ok()) done = awaited;
    if (awaited.ok() || awaited.code() == ZERO_ERR_TIMEOUT) break;
  }
  return done;
}

Status await(Device& device, EventHandle event, int64_t timeout_ms, std::string_view what,
             const std::function<Status()>& stop) {
  constexpr int64_t kSpinNs = 50'000;
  const Deadline deadline(timeout_ms);
  const int64_t start_ns = now_ns();
  while (!ZERO_TRY(device.done(event))) {
    if (stop) ZERO_TRY(stop());
    if (deadline.passed())
      return Status(ZERO_ERR_TIMEOUT,
                    text("the device did not finish ", what, " within ", timeout_ms, " ms"));
    const int64_t waited_ns = now_ns() - start_ns;
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
