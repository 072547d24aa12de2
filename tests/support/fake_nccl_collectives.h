// SPDX-License-Identifier: Apache-2.0
// Collectives of the fake NCCL: parts of ranks on streams of chaos devices, summed in rank order.
#pragma once

#include <cstddef>

#include "comm/nccl/abi.h"

namespace zero::test::fake_nccl {

int collective(const char* what, const void* send, void* recv, size_t count, int type, int root,
               nccl::Handle handle, void* stream);
/// The collectives that a thread calls between these two are one launch.
void begin_group();
int end_group();

}  // namespace zero::test::fake_nccl
