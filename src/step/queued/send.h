// SPDX-License-Identifier: Apache-2.0
// What the host knows and the device reads: tables, settings, progress.
#pragma once

#include "step/queued/queue.h"

namespace zero::queued {

/// Settings of classes and groups, the slots that groups use, and where settings that the caller
/// keeps stand, as of now.
Blob settings_of_now(const Optimizer& optim, Frame& frame);

/// What the device has not been sent yet, in the order of `stream`.
Status send(const Optimizer& optim, StepMemory& memory, StreamHandle stream);

}  // namespace zero::queued
