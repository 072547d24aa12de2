// SPDX-License-Identifier: Apache-2.0
// How fast this machine currently moves memory, with the kernels that every step is compared with.
#pragma once

#include <cstddef>
#include <vector>

#include "board.h"

namespace bench {

enum Stream { kStreamingCopy, kCopy, kScale, kTriad, kRead, kMix, kStreams };

struct StreamInfo {
  const char* name;
  double bytes_per_element;
  bool is_reference;  // the others are only shown for comparison
};
inline constexpr StreamInfo kStreamInfo[kStreams] = {
    {"streaming copy", 8, true},  {"copy", 8, true},       {"in-place scale", 8, true},
    {"triad in place", 12, true}, {"read only", 4, false}, {"five in, three out", 32.0 / 3, false},
};

/// One rank's arrays, and the kernels that its threads run on them.
class Streams {
 public:
  Streams(const Rank& rank, size_t elements);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Times every kernel once, on all ranks at once, in series `first` and the following.
  void round(int first, bool keep);

  /// Returns the bytes that all ranks move in one pass.
  static double bytes(Stream stream, size_t elements, int world);

 private:
  void run(Stream stream);

  const Rank& rank_;
  const size_t elements_;
  float* to_;
  float* from_;
};

}  // namespace bench
