// SPDX-License-Identifier: Apache-2.0
// The options of comms.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero {

struct CommOptions {
  int64_t timeout_ms = 300'000;
  int64_t late_ms = 1'800'000;
  int64_t rendezvous_ms = 120'000;
  // For NCCL's work.
  bool gathers_on_kernels = false;  // not by copy engines
  int32_t reduce_ctas = 16;
  // For devices that do not reach each other's memory: gradients and parameters go through the
  // host's memory, of which each rank has staging_bytes. The same on every rank.
  bool stages = true;
  size_t staging_bytes = size_t{8} << 20;

  /// Returns those of a comm by which ranks form another: each may wait as long as a rendezvous.
  CommOptions patient() const {
    CommOptions longer = *this;
    longer.late_ms = longer.timeout_ms = rendezvous_ms;
    return longer;
  }
};

}  // namespace zero
