// SPDX-License-Identifier: Apache-2.0
#include "plan/buckets.h"

#include <algorithm>

namespace zero {

Buckets::Buckets(int64_t blocks, int32_t world, int64_t bucket_elements)
    : world_(world),
      stride_(std::max<int64_t>(1, bucket_elements / (kBlock * world))),
      full_(blocks / (stride_ * world)),
      middle_(blocks % (stride_ * world) / world),
      last_(blocks % world) {}

Buckets::Bucket Buckets::operator[](int64_t index) const {
  const int64_t full_share = full_ * stride_ * kBlock;
  if (index < full_) {
    const int64_t share = index * stride_ * kBlock;
    return {share * world_, stride_ * kBlock, share};
  }
  if (index == full_ && middle_ > 0) return {full_share * world_, middle_ * kBlock, full_share};
  const int64_t share = full_share + middle_ * kBlock;
  return {share * world_, kBlock, share};
}

Buckets::Place Buckets::find(int64_t position) const {
  const int64_t block = position / kBlock;
  const int64_t bucket_blocks = stride_ * world_;
  if (block < full_ * bucket_blocks) {
    return {block / bucket_blocks, static_cast<int32_t>(block % bucket_blocks / stride_)};
  }
  const int64_t behind = block - full_ * bucket_blocks;
  if (behind < middle_ * world_) return {full_, static_cast<int32_t>(behind / middle_)};
  return {full_ + (middle_ > 0 ? 1 : 0), static_cast<int32_t>(behind - middle_ * world_)};
}

int64_t Buckets::owned_blocks(int32_t rank) const {
  return full_ * stride_ + middle_ + (rank < last_ ? 1 : 0);
}

}  // namespace zero
