// SPDX-License-Identifier: Apache-2.0
// The interface of a save that runs in the background. Calls between its begin and its end use it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/comm.h"

namespace zero {

class Saving {
 public:
  virtual ~Saving() = default;

  /// The progress of this rank with the current part of the save. Every entry vote carries it.
  enum class Word : uint64_t { none, busy, ready, failed };
  virtual Word word() = 0;
  /// The combined words of several ranks.
  struct Words {
    Word least = Word::none, most = Word::none;

    Words() = default;
    Words(Word word) : least(word), most(word) {}
    void add(const Words& other) {
      least = std::min(least, other.least);
      most = std::max(most, other.most);
    }
  };
  /// Receives the words of all ranks, inside a call that has voted. When all ranks are ready, the
  /// next part begins.
  virtual Status hear(Call& call, const Words& all) = 0;
  /// Copies those unwritten bytes that a step changes outside its walk over the share.
  virtual void keep_for_step() = 0;
};

}  // namespace zero
