// SPDX-License-Identifier: Apache-2.0
// Does the work of one of a piece's eight threads in launch::Reduce, and adds the results to the
// record. Each thread has one lane of the norm, as kernels.h defines it.
#pragma once

#include "kernels/launch_sums.h"

namespace zero::launch {

inline constexpr uint32_t kLanes = 8;

/// The results of one lane, or of all lanes of a piece.
struct Found {
  double norm = 0;         // sum of the terms
  uint64_t magnitude = 0;  // bits of the largest, in the sum's type; NaN is above infinity
  uint32_t nonfinite = 0;
};

/// Combines two lanes. Each lane is combined with the one 4, then 2, then 1 further on:
/// ((0+4)+(2+6)) + ((1+5)+(3+7)).
ZERO_ELEMENT Found combined(const Found& a, const Found& b) {
  return {a.norm + b.norm, a.magnitude < b.magnitude ? b.magnitude : a.magnitude,
          a.nonfinite + b.nonfinite};
}

template <class Real>
ZERO_ELEMENT void take_norm(Found& found, Real value, Norm norm) {
  const WordOf<Real> magnitude = magnitude_word(value);
  found.nonfinite += magnitude >= kInfinityWord<Real>;
  if (norm == Norm::squares) {
    const double wide = static_cast<double>(value);
    found.norm = found.norm + wide * wide;
  } else if (norm == Norm::abs) {
    found.norm = found.norm + static_cast<double>(real_of<Real>(magnitude));
  } else if (norm == Norm::largest) {
    found.magnitude = found.magnitude < magnitude ? magnitude : found.magnitude;
  }
}

/// Sums elements lane, lane + 8, ... of a piece. `together` is 1 for a single source.
template <class Real, uint32_t together>
ZERO_HOST_DEVICE inline Found reduce_lane(const Reduce& launch, uint32_t number, uint32_t lane) {
  constexpr int n = kGroup<Real>;
  const PieceRow piece = launch.pieces[number];
  const Sums sums = launch.sums[piece.of];  // a copy: see update_tile()
  const uint32_t width = together == 1 ? 1 : launch.width;
  const auto how = summing<together>(launch.format, width, launch.sources, sums.pointers);
  const bool stores = launch.adds || how.width > 1 || how.first[0] != sums.out ||
                      how.from != launch.format.sum || how.rounded != DType::none ||
                      how.divisor != 1;
  Found found;
  for (uint32_t i = lane; i < piece.count; i += n * kLanes) {
    const uint32_t there = (piece.count - i + kLanes - 1) / kLanes;
    const Group group = {piece.first + i, kLanes, static_cast<int32_t>(there < n ? there : n),
                         false};
    Bits sources[together], bits = {};
    Real sum[n];
    load_sources<Real>(sources, how.first, how, group);  // first: their pointers may be loading
    if (launch.adds) {
      load_words<n, WordOf<Real>, Use::soon>(bits, sums.out, group);
      for (int j = 0; j < n; j++) sum[j] = real_of<Real>(word_at<WordOf<Real>>(bits, j));
    }
    sum_group(sum, sources, how, group, launch.adds);
    for (int j = 0; j < n; j++) {
      take_norm(found, sum[j], launch.norm);  // missing elements are 0
      set_word(bits, j, word_of(sum[j]));
    }
    if (stores) store_words<n, WordOf<Real>, Use::soon>(sums.out, bits, group);
  }
  return found;
}

// ---- Records to which many threads add

/// Adds to a word of memory to which other threads add at the same time.
struct AddShared {
  ZERO_ELEMENT void operator()(uint64_t& word, uint64_t number) const {
#ifdef __CUDA_ARCH__
    atomicAdd(reinterpret_cast<unsigned long long*>(&word),
              static_cast<unsigned long long>(number));
#else
    word += number;
#endif
  }
  ZERO_ELEMENT void mark(uint32_t& flag) const {
#ifdef __CUDA_ARCH__
    atomicExch(&flag, 1u);
#else
    flag = 1;
#endif
  }
};

/// Raises `to` to `magnitude` if that is larger. Doubles without a sign sort like their bits.
ZERO_ELEMENT void raise_shared(double& to, double magnitude) {
#ifdef __CUDA_ARCH__
  atomicMax(reinterpret_cast<unsigned long long*>(&to),
            static_cast<unsigned long long>(word_of(magnitude)));
#else
  if (word_of(to) < word_of(magnitude)) to = magnitude;
#endif
}

/// Adds the results of all lanes of a piece to the record.
template <class Real>
ZERO_ELEMENT void add_piece(NormSums& record, const Found& found, Norm norm) {
  if (found.nonfinite != 0) AddShared()(record.nonfinite, found.nonfinite);
  if (norm == Norm::largest) {
    const auto largest = real_of<Real>(static_cast<WordOf<Real>>(found.magnitude));
    const double wide = static_cast<double>(largest);
    raise_shared(record.max, real_of<double>(magnitude_word(wide)));
  } else if (norm != Norm::none) {
    record.sum.add_by(found.norm, AddShared());
  }
}

/// add_record() adds one of the kRecordParts parts of a block's results to the record.
inline constexpr uint32_t kRecordParts = static_cast<uint32_t>(ExactSum::kWords) + 1;
ZERO_ELEMENT void add_record(NormSums& record, const NormSums& block, uint32_t part) {
  if (part < ExactSum::kWords) {
    record.sum.add_word_by(part, block.sum, AddShared());
    return;
  }
  if (block.nonfinite != 0) AddShared()(record.nonfinite, block.nonfinite);
  if (word_of(block.max) != 0) raise_shared(record.max, block.max);
}

}  // namespace zero::launch
