// SPDX-License-Identifier: Apache-2.0
// Comms through the public header, of every kind that a test asks for, and what their last error
// said.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "support/ranks.h"
#include "support/user_comm.h"
#include "zero.h"

namespace zero::test {

enum class CommKind { local, user };
constexpr CommKind kCommKinds[] = {CommKind::local, CommKind::user};
const char* name_of(CommKind kind);

/// What the ranks of one comm share before they start; made before they are forked.
class Meeting {
 public:
  /// No wait of these ranks is longer than `patience_ms`, wherever it is.
  Meeting(CommKind kind, int world, int64_t patience_ms = 30'000);

  /// This rank's seat, or null and a failed expectation. `before` runs ahead of each of the
  /// engine's functions (see EngineSeat); a local comm has none.
  zero_comm* join(int rank, std::function<Code(const char* function)> before = {}) const;

 private:
  const CommKind kind_;
  const int world_;
  const int64_t patience_ms_;
  const std::string name_;
  const std::unique_ptr<Engine> engine_;
};

/// body(comm, rank) on `world` threads; the comms are freed behind it.
void on_ranks(CommKind kind, int world, const std::function<void(zero_comm*, int rank)>& body);

zero_comm* solo();

/// zero_last_error of this thread.
std::string last();
/// Does the last error have these words in it?
::testing::AssertionResult says(const std::string& words);

}  // namespace zero::test
