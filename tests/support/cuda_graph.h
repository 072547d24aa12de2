// SPDX-License-Identifier: Apache-2.0
// Captures CUDA graphs on a GPU through the runtime that the library is linked with. Without CUDA
// in the build, every function returns an error.
#pragma once

#include <memory>

#include "device/device.h"

namespace zero::test {

/// Captures what this thread queues on `stream` until end_cuda_capture().
Status begin_cuda_capture(StreamHandle stream);
/// Returns the graph, ready for launches.
Result<std::shared_ptr<void>> end_cuda_capture(StreamHandle stream);
Status launch_cuda_graph(const std::shared_ptr<void>& graph, StreamHandle stream);

}  // namespace zero::test
