// SPDX-License-Identifier: Apache-2.0
#include "support/comms.h"

namespace zero::test {

const char* name_of(CommKind kind) { return kind == CommKind::local ? "local" : "user"; }

Meeting::Meeting(CommKind kind, int world, int64_t patience_ms)
    : kind_(kind),
      world_(world),
      patience_ms_(patience_ms),
      name_(unique_name()),
      engine_(kind == CommKind::user ? std::make_unique<Engine>(world) : nullptr) {}

zero_comm* Meeting::join(int rank, std::function<Code(const char*)> before) const {
  zero_comm_options options;
  ZERO_INIT(options);
  options.timeout_ms = options.late_ms = options.rendezvous_ms = patience_ms_;
  zero_comm* comm = nullptr;
  if (kind_ == CommKind::local) {
    EXPECT_EQ(zero_comm_create_local(&comm, name_.c_str(), rank, world_, &options), ZERO_OK)
        << last();
    return comm;
  }
  const zero_comm_functions functions = as_public(Engine::functions());
  EngineSeat* const seat = engine_->seat(rank);
  seat->before = std::move(before);
  EXPECT_EQ(zero_comm_create_user(&comm, &functions, seat, rank, world_, &options), ZERO_OK)
      << last();
  return comm;
}

void on_ranks(CommKind kind, int world, const std::function<void(zero_comm*, int rank)>& body) {
  const Meeting meeting(kind, world);
  run_sound_ranks(RankKind::threads, world, [&](int rank) {
    zero_comm* const comm = meeting.join(rank);
    if (comm != nullptr) body(comm, rank);
    zero_comm_free(comm);
    return std::string();
  });
}

zero_comm* solo() {
  zero_comm* comm = nullptr;
  EXPECT_EQ(zero_comm_create_solo(&comm, nullptr), ZERO_OK) << last();
  return comm;
}

std::string last() { return zero_last_error(); }

::testing::AssertionResult says(const std::string& words) {
  if (last().find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << last() << "' does not say '" << words << "'";
}

}  // namespace zero::test
