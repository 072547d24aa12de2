// SPDX-License-Identifier: Apache-2.0
// The even rule: how the blocks of one seal are cut into buckets of world equal chunks. Arithmetic
// only, nothing is stored per bucket or rank.
#pragma once

#include <cstdint>

namespace zero {

inline constexpr int64_t kBlock = 1024;

/// Buckets cover the blocks without gaps: full ones; one with what is left for all ranks alike; and
/// one of a single block a rank for the last blocks, fewer than ranks, where the ranks behind them
/// get only padding. Positions count elements from the start of the seal.
class Buckets {
 public:
  Buckets() = default;
  Buckets(int64_t blocks, int32_t world, int64_t bucket_elements);

  struct Bucket {
    int64_t begin;  // of rank 0's chunk
    int64_t chunk;
    int64_t share;  // of the chunk, in every rank's share
  };

  /// Chunks by position, across buckets; neighbours have different owners if there are two ranks.
  struct Place {
    int64_t bucket;
    int32_t rank;
    bool operator==(const Place&) const = default;
  };

  int64_t size() const { return full_ + (middle_ > 0 ? 1 : 0) + (last_ > 0 ? 1 : 0); }
  Bucket operator[](int64_t index) const;
  /// The chunk that holds the element at `position`, which is inside a block.
  Place find(int64_t position) const;

  /// Blocks that `rank` owns.
  int64_t owned_blocks(int32_t rank) const;
  int64_t layout_elements() const { return share_elements() * world_; }
  int64_t share_elements() const {
    return (full_ * stride_ + middle_ + (last_ > 0 ? 1 : 0)) * kBlock;
  }

 private:
  int64_t world_ = 1;
  int64_t stride_ = 1;  // blocks a rank in a full bucket
  int64_t full_ = 0;    // full buckets
  int64_t middle_ = 0;  // blocks a rank in the bucket behind them, 0: there is none
  int64_t last_ = 0;    // blocks in the last bucket, fewer than ranks; 0: there is none
};

}  // namespace zero
