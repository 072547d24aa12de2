// SPDX-License-Identifier: Apache-2.0
// The even rule: the blocks of one section are cut into buckets of world equal chunks. This is
// arithmetic only; nothing is stored per bucket or rank.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zero {

inline constexpr int64_t kBlock = 1024;

/// Buckets cover the blocks without gaps. First come full ones. Then comes one with the blocks that
/// are left for all ranks alike. The last one has a single block a rank; its blocks are fewer than
/// ranks, so the ranks behind them get only padding. Positions count elements from the start of the
/// section.
class Buckets {
 public:
  Buckets() = default;
  Buckets(int64_t blocks, int32_t world, int64_t bucket_elements)
      : world_(world),
        stride_(std::max<int64_t>(1, bucket_elements / (kBlock * world))),
        full_(blocks / (stride_ * world)),
        middle_(blocks % (stride_ * world) / world),
        last_(blocks % world) {}

  struct Bucket {
    int64_t begin;  // of rank 0's chunk
    int64_t chunk;
    int64_t share;  // of the chunk, in every rank's share
  };

  /// One chunk. Neighbouring chunks, across buckets too, have different owners if there are two
  /// ranks or more.
  struct Place {
    int64_t bucket;
    int32_t rank;
    bool operator==(const Place&) const = default;
  };

  int64_t size() const { return full_ + (middle_ > 0 ? 1 : 0) + (last_ > 0 ? 1 : 0); }
  Bucket operator[](int64_t index) const {
    const bool is_full = index < full_, is_middle = index == full_ && middle_ > 0;
    const int64_t blocks_before = is_full     ? index * stride_
                                  : is_middle ? full_ * stride_
                                              : full_ * stride_ + middle_;
    const int64_t share = blocks_before * kBlock;
    return {share * world_, (is_full ? stride_ : is_middle ? middle_ : 1) * kBlock, share};
  }

  /// Returns the chunk that holds the element at `position`, which must be inside a block.
  Place find(int64_t position) const {
    const int64_t block = position / kBlock;
    const int64_t bucket_blocks = stride_ * world_, behind = block - full_ * bucket_blocks;
    if (behind < 0)
      return {block / bucket_blocks, static_cast<int32_t>(block % bucket_blocks / stride_)};
    if (behind < middle_ * world_) return {full_, static_cast<int32_t>(behind / middle_)};
    return {full_ + (middle_ > 0 ? 1 : 0), static_cast<int32_t>(behind - middle_ * world_)};
  }

  /// Blocks that `rank` owns.
  int64_t owned_blocks(int32_t rank) const {
    return full_ * stride_ + middle_ + (rank < last_ ? 1 : 0);
  }
  int64_t layout_elements() const { return share_elements() * world_; }
  int64_t share_elements() const {
    return (full_ * stride_ + middle_ + (last_ > 0 ? 1 : 0)) * kBlock;
  }

 private:
  int64_t world_ = 1;
  int64_t stride_ = 1;  // blocks a rank in a full bucket
  int64_t full_ = 0;    // full buckets
  int64_t middle_ = 0;  // blocks a rank in the bucket behind them; 0: there is none
  int64_t last_ = 0;    // blocks in the last bucket, fewer than ranks; 0: there is none
};

}  // namespace zero
