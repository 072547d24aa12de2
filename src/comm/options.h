// SPDX-License-Identifier: Apache-2.0
// Options of comms.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero {

struct CommOptions {
  int64_t timeout_ms = 300'000;
  int64_t late_ms = 1'800'000;
  int64_t rendezvous_ms = 120'000;
  // Options for NCCL.
  bool gathers_on_kernels = false;  // instead of copy engines
  int32_t reduce_ctas = 16;
  // For devices that cannot access each other's memory. Gradients and parameters go through
  // staging_bytes of host memory on each rank. Both are the same on every rank.
  bool stages = true;
  size_t staging_bytes = size_t{8} << 20;

  /// Returns the options of a temporary comm for forming another, with the limit of a rendezvous.
  CommOptions patient() const {
    CommOptions longer = *this;
    longer.late_ms = longer.timeout_ms = rendezvous_ms;
    return longer;
  }
};

}  // namespace zero
