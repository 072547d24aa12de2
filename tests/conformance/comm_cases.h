// SPDX-License-Identifier: Apache-2.0
// Every comm that there is, for tests of what all of them promise: solo, local, user and nccl,
// with ranks as threads and as processes. A new backend joins by one line in `make` and one in the
// list of cases at the end.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "comm/comm.h"
#include "comm/create.h"
#include "support/chaos_device.h"
#include "support/nccl_ranks.h"
#include "support/ranks.h"
#include "support/user_comm.h"
#include "zero.h"

namespace zero::test {

/// Of local comms on devices: `gates` where streams wait for each other, `hosts` where hosts do,
/// `staged` where no device reaches another's memory.
enum class Backend { solo, local, user, user_sums, nccl, gates, hosts, staged };

struct Case {
  Backend backend;
  RankKind ranks;
  int32_t world;
};

inline std::string name_of(const Case& c) {
  const char* const backends[] = {"solo", "local", "user",  "user_sums",
                                  "nccl", "gates", "hosts", "staged"};
  return text(backends[static_cast<int>(c.backend)],
              c.ranks == RankKind::threads ? "_threads_" : "_processes_", c.world);
}

// So that a failing case says which it is.
inline void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

using Seat = std::shared_ptr<Comm>;

/// What the ranks of a case need before they start.
class Seats {
 public:
  explicit Seats(const Case& c) : case_(c), name_(unique_name()) {
    if (c.backend == Backend::user || c.backend == Backend::user_sums)
      engine_ = std::make_unique<Engine>(c.world);
    if (c.backend == Backend::gates || c.backend == Backend::hosts ||
        c.backend == Backend::staged) {
      const auto world = ChaosWorld::create({.patience = INT64_MAX,
                                             .words = c.backend != Backend::hosts,
                                             .reaches = c.backend != Backend::staged});
      for (int32_t rank = 0; rank < c.world; ++rank) devices_.push_back(world->make_device(rank));
    }
    if (c.backend == Backend::nccl) nccl_ = std::make_unique<NcclRanks>(c.world);
  }

  /// The seat of `rank` in group `number`: groups with other numbers are other comms of the same
  /// ranks.
  Seat join(int32_t rank, int number = 0, const CommOptions& options = {}) {
    Result<Seat> seat = make(rank, number, options);
    if (!seat.ok()) ADD_FAILURE() << "rank " << rank << ": " << seat.failure().text();
    return seat.ok() ? *seat : nullptr;
  }

  void expect_nothing_left() const {
    if (engine_) {
      EXPECT_EQ(engine_->seats(), 0);
    }
  }

 private:
  Result<Seat> make(int32_t rank, int number, const CommOptions& options) {
    switch (case_.backend) {
      case Backend::solo:
        return create_solo(options);
      case Backend::local:
      case Backend::gates:
      case Backend::hosts:
      case Backend::staged:
        return make_local(rank, number, options);
      case Backend::user:
        return create_user(Engine::functions(), engine_->seat(rank), rank, case_.world, options);
      case Backend::user_sums:
        return create_user(Engine::functions(true), engine_->seat(rank), rank, case_.world,
                           options);
      case Backend::nccl:
        return nccl_->join(rank, options, number);
    }
    return Status(ZERO_ERR_INTERNAL, "no such backend");
  }

  Result<Seat> make_local(int32_t rank, int number, const CommOptions& options) {
#ifdef ZERO_TEST_WITHOUT_LOCAL
    (void)rank, (void)number, (void)options;
    return Status(ZERO_ERR_UNSUPPORTED, "built without the local comm");
#else
    const auto device = devices_.empty() ? nullptr : devices_[static_cast<size_t>(rank)];
    return create_local(text(name_, "-", number), rank, case_.world, options, device);
#endif
  }

  const Case case_;
  const std::string name_;
  std::vector<std::shared_ptr<ChaosDevice>> devices_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<NcclRanks> nccl_;
};

class Conformance : public testing::TestWithParam<Case> {
 protected:
  int32_t world() const { return GetParam().world; }

  /// Run `body` on every rank of one comm; its results by rank.
  std::vector<std::string> run_all(const std::function<std::string(const Seat& seat)>& body) {
    Seats seats(GetParam());
    std::vector<std::string> results =
        run_sound_ranks(GetParam().ranks, world(), [&](int rank) -> std::string {
          const Seat seat = seats.join(rank);
          return seat ? body(seat) : "";
        });
    seats.expect_nothing_left();
    return results;
  }

  void run(const std::function<void(const Seat& seat)>& body) {
    run_all([&](const Seat& seat) {
      body(seat);
      return "";
    });
  }
};

#define EXPECT_OK(expression)                                      \
  do {                                                             \
    const Status expect_ok_status = (expression);                  \
    EXPECT_TRUE(expect_ok_status.ok()) << expect_ok_status.text(); \
  } while (false)

/// A call that must begin.
inline Call begin(const Seat& seat, Operation operation = Operation::barrier, uint32_t object = 0) {
  Result<Call> call = seat->begin(operation, object);
  EXPECT_TRUE(call.ok()) << call.failure().text();
  if (!call.ok()) std::abort();
  return std::move(call).value();
}

/// Bytes that tell their rank and place, made eight at a time.
inline std::vector<std::byte> bytes_of_rank(int32_t rank, size_t bytes) {
  std::vector<uint64_t> words(bytes / 8 + 1);
  uint64_t word = static_cast<uint64_t>(rank) + 1;
  for (uint64_t& out : words) out = word = word * 6364136223846793005u + 1442695040888963407u;
  std::vector<std::byte> out(bytes);
  if (bytes != 0) memcpy(out.data(), words.data(), bytes);
  return out;
}

inline std::vector<std::byte> bytes_of_all(int32_t world, size_t bytes) {
  std::vector<std::byte> out;
  for (int32_t r = 0; r < world; ++r) {
    const std::vector<std::byte> one = bytes_of_rank(r, bytes);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

inline std::string outcome(Code code, std::string_view sentence) {
  return text(code, " ", sentence);
}
inline std::string outcome_of(const Status& status) {
  return outcome(status.code(), status.text());
}

/// Everything works as if nothing had happened.
inline void expect_usable(const Seat& seat) {
  Call call = begin(seat);
  const Result<std::vector<int32_t>> all = call.exchange("usable", seat->rank());
  ASSERT_TRUE(all.ok()) << all.failure().text();
  for (int32_t r = 0; r < seat->world(); ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], r);
}

inline Status barrier(const Seat& seat, Operation operation = Operation::barrier,
                      uint32_t object = 0) {
  Call call = ZERO_TRY(seat->begin(operation, object));
  return call.vote("barrier", {});
}

inline std::vector<Case> cases() {
  std::vector<Case> all = {{Backend::solo, RankKind::threads, 1}};
  std::vector<Backend> backends = {Backend::user};
#ifndef ZERO_TEST_WITHOUT_LOCAL
  backends.push_back(Backend::local);
#endif
  for (Backend backend : backends)
    for (RankKind ranks : {RankKind::threads, RankKind::processes})
      for (int32_t world = 1; world <= 5; ++world) all.push_back({backend, ranks, world});
  all.push_back({Backend::user_sums, RankKind::threads, 3});
#ifndef ZERO_TEST_WITHOUT_LOCAL
  for (const Backend backend : {Backend::gates, Backend::hosts, Backend::staged})
    for (const auto& [ranks, world] :
         {std::pair(RankKind::threads, 1), {RankKind::threads, 3}, {RankKind::processes, 3}})
      all.push_back({backend, ranks, world});
#endif
  for (const int32_t world : {1, 2, 4}) all.push_back({Backend::nccl, RankKind::threads, world});
  return all;
}

}  // namespace zero::test
