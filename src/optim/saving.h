// SPDX-License-Identifier: Apache-2.0
// A save whose files are written while training goes on, as the calls between its begin and its end
// see it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/comm.h"

namespace zero {

class Saving {
 public:
  virtual ~Saving() = default;

  /// How far this rank is with the part that all ranks wait for. Every entry vote carries it.
  enum class Word : uint64_t { none, busy, ready, failed };
  virtual Word word() = 0;
  /// The words of some ranks.
  struct Words {
    Word least = Word::none, most = Word::none;

    Words() = default;
    Words(Word word) : least(word), most(word) {}
    void add(const Words& other) {
      least = std::min(least, other.least);
      most = std::max(most, other.most);
    }
  };
  /// Takes the words of all ranks, inside a call that has voted: when all are ready, the next part
  /// begins.
  virtual Status hear(Call& call, const Words& all) = 0;
  /// Keeps of what is still to be written all that a step changes elsewhere than in its walk
  /// over the share.
  virtual void keep_for_step() = 0;
};

}  // namespace zero
