// SPDX-License-Identifier: Apache-2.0
// A user comm as an engine would write it for ranks on one host: copy in, barrier, copy out.
#pragma once

#include <memory>

#include "board.h"
#include "zero.h"

namespace bench {

/// Must be created before the ranks are forked.
class BounceMemory {
 public:
  static constexpr size_t kSlotBytes = size_t{32} << 20;  // of one rank
  explicit BounceMemory(int world)
      : data_(share<unsigned char>(kSlotBytes * static_cast<size_t>(world))), world_(world) {}
  ~BounceMemory() { munmap(data_, kSlotBytes * static_cast<size_t>(world_)); }
  BounceMemory(const BounceMemory&) = delete;
  BounceMemory& operator=(const BounceMemory&) = delete;

  unsigned char* slot(int rank) const { return data_ + kSlotBytes * static_cast<size_t>(rank); }

 private:
  unsigned char* data_;
  int world_;
};

zero_status create_bench_comm(zero_comm** out, const Rank& rank, const BounceMemory& memory);

}  // namespace bench
