// SPDX-License-Identifier: Apache-2.0
// Memory that is to be the host's, in a process that uses a GPU as well.
#pragma once

namespace zero {

/// Whether `data` is memory of a GPU, as far as a CUDA driver knows that the process has loaded, be
/// it for somebody else: touching it would end the process.
bool is_gpu_memory(const void* data);

}  // namespace zero
