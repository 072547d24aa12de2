// SPDX-License-Identifier: Apache-2.0
// Cuts a section into buckets of world equal chunks, so that each rank owns one chunk of each
// bucket. This is arithmetic only; nothing is stored per bucket or rank.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zero {

inline constexpr int64_t kBlock = 1024;

/// With the even rule, buckets cover the blocks without gaps. Full buckets come first. The next
/// bucket has the same number of the remaining blocks for every rank. The last bucket has one block
/// per rank, but for fewer ranks than there are; the later ranks get only padding. With
/// whole-tensor rules there is one bucket. Positions count elements from the start of the section.
class Buckets {
 public:
  Buckets() = default;
  Buckets(int64_t blocks, int32_t world, int64_t bucket_elements)
      : world_(world),
        stride_(std::max<int64_t>(1, bucket_elements / (kBlock * world)) * kBlock),
        full_(blocks * kBlock / (stride_ * world)),
        middle_((blocks * kBlock - full_ * stride_ * world) / (kBlock * world) * kBlock),
        last_(blocks % world) {}
  /// Returns one bucket whose chunks have `chunk` elements, or no bucket for 0.
  static Buckets single(int32_t world, int64_t chunk) {
    Buckets buckets;
    buckets.world_ = world;
    buckets.stride_ = chunk;
    buckets.full_ = chunk > 0 ? 1 : 0;
    return buckets;
  }

  struct Bucket {
    int64_t begin;  // of rank 0's chunk
    int64_t chunk;
    int64_t share;   // of the chunk in every rank's share
    int32_t owners;  // the first ranks; chunks of the others are padding
  };

  /// One chunk. Adjacent chunks, even in different buckets, have different owners if there are at
  /// least two ranks.
  struct Place {
    int64_t bucket;
    int32_t rank;
    bool operator==(const Place&) const = default;
  };

  int64_t size() const { return full_ + (middle_ > 0 ? 1 : 0) + (last_ > 0 ? 1 : 0); }
  Bucket operator[](int64_t index) const {
    const int64_t full = full_ * stride_;
    const auto world = static_cast<int32_t>(world_);
    if (index < full_) return {index * stride_ * world_, stride_, index * stride_, world};
    if (index == full_ && middle_ > 0) return {full * world_, middle_, full, world};
    return {(full + middle_) * world_, kBlock, full + middle_, static_cast<int32_t>(last_)};
  }

  /// Returns the chunk that holds the element at `position`, which must be inside a bucket.
  Place find(int64_t position) const {
    const int64_t bucket = stride_ * world_, behind = position - full_ * bucket;
    if (behind < 0) return {position / bucket, static_cast<int32_t>(position % bucket / stride_)};
    if (behind < middle_ * world_) return {full_, static_cast<int32_t>(behind / middle_)};
    return {size() - 1, static_cast<int32_t>((behind - middle_ * world_) / kBlock)};
  }

  /// Returns the number of elements in `rank`'s chunks, without its padding after the last block.
  /// Rank 0 has no such padding.
  int64_t owned_elements(int32_t rank) const {
    return full_ * stride_ + middle_ + (rank < last_ ? kBlock : 0);
  }

 private:
  int64_t world_ = 1;
  int64_t stride_ = 1;  // elements per rank in a full bucket
  int64_t full_ = 0;    // full buckets
  int64_t middle_ = 0;  // elements per rank in the bucket after those; 0: there is none
  int64_t last_ = 0;    // blocks in the last bucket, fewer than ranks; 0: there is none
};

}  // namespace zero
