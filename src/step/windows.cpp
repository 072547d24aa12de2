// SPDX-License-Identifier: Apache-2.0
#include "step/windows.h"

#include "step/memory.h"

namespace zero {

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
