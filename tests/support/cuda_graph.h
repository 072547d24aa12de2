// SPDX-License-Identifier: Apache-2.0
// Captures on a GPU, by the runtime that the library is linked with. Without CUDA in the build all
// of it is an error.
#pragma once

#include <memory>

#include "device/device.h"

namespace zero::test {

/// From here to end_cuda_capture() what this thread queues on `stream` is captured.
Status begin_cuda_capture(StreamHandle stream);
/// The graph, ready to be launched.
Result<std::shared_ptr<void>> end_cuda_capture(StreamHandle stream);
Status launch_cuda_graph(const std::shared_ptr<void>& graph, StreamHandle stream);

}  // namespace zero::test
