// SPDX-License-Identifier: Apache-2.0
#include "step/memory.h"

#include "step/backward.h"
#include "step/queued/queue.h"

namespace zero {

StepMemory::StepMemory() = default;
StepMemory::~StepMemory() {
  if (queue == nullptr || queue->await_end()) return;
  for (const std::shared_ptr<Arena>& arena : held) arena->stay();
  for (const std::shared_ptr<Arena>& arena : {staging, outbox, records})
    if (arena != nullptr) arena->stay();
  queue->device->give_up();
}

Result<Windows*> windows_of(Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  if (memory.windows == nullptr) {
    const std::shared_ptr<Device>& device = optim.comm->device();
    const int64_t timeout_ms = optim.comm->options().timeout_ms;
    auto made = std::make_unique<Windows>();
    made->values = ZERO_TRY(Window::create(device, timeout_ms));
    made->remainders = ZERO_TRY(Window::create(device, timeout_ms));
    memory.windows = std::move(made);
  }
  return memory.windows.get();
}

}  // namespace zero
