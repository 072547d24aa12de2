// SPDX-License-Identifier: Apache-2.0
// What calls request from a backend. conformance/comm*_test.cpp tests what ranks see of each other.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "base/text.h"
#include "comm/comm.h"
#include "comm/failure.h"
#include "support/ranks.h"

namespace zero {
namespace {

/// Rank 0 of two. The other rank sends the same as this one, changed by `spoil`. Records the
/// requests.
class EchoComm : public Comm {
 public:
  struct Asked {
    size_t bytes;
    bool entry;
    std::string operation;
    std::string phase;
    bool broadcast;
  };

  explicit EchoComm(const CommOptions& options = {}) : Comm(0, 2, options) {}

  std::vector<Asked> asked;
  std::function<void(std::byte* record)> spoil = [](std::byte*) {};
  int progress = 0;

  const char* kind() const override { return "echo"; }
  bool direct() const override { return false; }

  static constexpr size_t kMostBytes = kRecordBytes;
  static constexpr size_t kRankAt = 8, kAgreedAt = 16, kOddAt = 88, kFailedAt = 168, kCodeAt = 172,
                          kWhyBytesAt = 176, kLongestAt = 184, kHeaderBytes = 216;

 protected:
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience& patience) override {
    const bool first = asked.empty() || mine.size() == asked[0].bytes;
    asked.push_back(
        {mine.size(), !patience.extended_by_progress, patience.operation, patience.phase, false});
    EXPECT_EQ(all.size(), 2 * mine.size());
    memcpy(all.data(), mine.data(), mine.size());
    memcpy(all.data() + mine.size(), mine.data(), mine.size());
    if (!first) return {};
    const uint32_t rank = 1;
    memcpy(all.data() + mine.size() + kRankAt, &rank, sizeof rank);
    spoil(all.data() + mine.size());
    return {};
  }
  Status broadcast_bytes(std::span<std::byte> data, int32_t, const Patience& patience) override {
    asked.push_back(
        {data.size(), !patience.extended_by_progress, patience.operation, patience.phase, true});
    return {};
  }
  Result<std::shared_ptr<Comm>> make_child(Call&, std::span<const int32_t>, int32_t,
                                           int32_t) override {
    return nothing();
  }
  void note_progress() override { ++progress; }

 private:
  static Status nothing() { return Status(ZERO_ERR_UNSUPPORTED, "echo"); }
};

struct Scene {
  std::shared_ptr<EchoComm> comm = std::make_shared<EchoComm>();
  Call call = comm->begin(Operation::step, 3).value();
};

TEST(Call, a_vote_in_peace_is_one_small_exchange) {
  Scene scene;
  struct Payload {
    Sum sums[75];
    void add(const Payload& other) {
      for (size_t i = 0; i < 75; ++i) sums[i].add(other.sums[i]);
    }
  };
  EXPECT_TRUE(scene.call.vote("vote", {}, Payload()).ok());
  ASSERT_EQ(scene.comm->asked.size(), 1u);
  EXPECT_EQ(scene.comm->asked[0].bytes, 1024u);
  EXPECT_EQ(scene.comm->asked[0].operation, "zero_step");
  EXPECT_EQ(scene.comm->asked[0].phase, "vote");
}

TEST(Call, only_its_first_exchange_waits_for_late_ranks) {
  Scene scene;
  const std::vector<std::byte> large(50'000);
  std::vector<std::byte> both(100'000);
  EXPECT_TRUE(scene.call.exchange("large", large, both).ok());
  EXPECT_TRUE(scene.call.vote("vote", {}).ok());
  ASSERT_GT(scene.comm->asked.size(), 2u);
  for (const auto& asked : scene.comm->asked)
    EXPECT_EQ(asked.entry, &asked == &scene.comm->asked[0]);
}

TEST(Call, every_first_exchange_has_the_same_size_and_none_exceeds_a_record) {
  std::set<size_t> first;
  for (size_t bytes : {0, 1, 900, 5000, 100'000}) {
    Scene scene;
    const std::string mine(bytes, 'x');
    std::vector<std::byte> all(2 * bytes), data(bytes);
    EXPECT_TRUE(scene.call.exchange("bytes", std::as_bytes(std::span(mine)), all).ok());
    EXPECT_EQ((*scene.call.gather("texts", mine))[1].size(), bytes);
    EXPECT_TRUE(scene.call.broadcast("data", data, 1).ok());
    EXPECT_TRUE(scene.call.agree("same", "what", mine).ok());
    first.insert(scene.comm->asked[0].bytes);
    for (const auto& asked : scene.comm->asked)
      EXPECT_LE(asked.bytes, asked.broadcast ? bytes : EchoComm::kMostBytes);
  }
  EXPECT_EQ(first.size(), 1u);
}

// This also bounds how long the other ranks wait for the next call of this rank.
TEST(Call, waits_for_one_that_ends_in_the_background_no_longer_than_late_ms) {
  CommOptions options;
  options.late_ms = 50;
  const auto comm = std::make_shared<EchoComm>(options);
  Call stuck = comm->begin(Operation::step).value();
  stuck.go_to_background();
  test::run_sound_ranks(test::RankKind::threads, 1, [&](int) {  // with a watchdog
    EXPECT_EQ(comm->begin(Operation::barrier).failure().code(), ZERO_ERR_TIMEOUT);
    return std::string();
  });
  EXPECT_TRUE(comm->aborted());
}

TEST(Call, does_not_wait_for_one_that_ends_in_the_background_of_a_broken_comm) {
  const auto comm = std::make_shared<EchoComm>();  // late_ms is half an hour
  Call stuck = comm->begin(Operation::step).value();
  stuck.go_to_background();
  std::thread other([&comm] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Failure cause;
    cause.code = ZERO_ERR_PEER_DEAD;
    comm->abort(cause);
  });
  test::run_sound_ranks(test::RankKind::threads, 1, [&](int) {
    EXPECT_EQ(comm->begin(Operation::barrier).failure().code(), ZERO_ERR_PEER_DEAD);
    return std::string();
  });
  other.join();
}

TEST(Call, long_phases_are_cut_and_stay_readable) {
  Scene scene;
  EXPECT_TRUE(scene.call.vote("a phase with far too many words for its field", {}).ok());
  EXPECT_EQ(scene.comm->asked[0].phase, "a phase with far too many words");
}

TEST(Call, any_flipped_bit_of_another_ranks_header_is_noticed_or_harmless) {
  for (size_t bit = 0; bit < EchoComm::kHeaderBytes * 8; ++bit) {
    Scene scene;
    scene.comm->spoil = [&](std::byte* record) { record[bit / 8] ^= std::byte{1} << bit % 8; };
    const Status status = scene.call.vote("vote", {});
    const auto within = [byte = bit / 8](size_t first, size_t end) {
      return byte >= first && byte < end;
    };
    const bool must_agree = within(0, 4) || within(EchoComm::kRankAt, EchoComm::kRankAt + 4) ||
                            within(EchoComm::kAgreedAt, EchoComm::kOddAt);
    EXPECT_TRUE(!must_agree || !status.ok()) << bit;
    EXPECT_EQ(scene.comm->aborted(), !status.ok()) << bit;
    const bool noticed = status.code() == ZERO_ERR_DESYNC || status.code() == ZERO_ERR_COMM;
    EXPECT_TRUE(status.ok() || noticed) << bit;
  }
}

TEST(Call, sizes_that_no_rank_can_mean_are_refused_before_memory_is_taken) {
  const uint64_t huge = UINT64_MAX / 2;
  Scene scene;
  scene.comm->spoil = [&](std::byte* record) {
    memcpy(record + EchoComm::kLongestAt, &huge, sizeof huge);
  };
  EXPECT_EQ(scene.call.gather("texts", "x").failure().code(), ZERO_ERR_UNSUPPORTED);
  scene.comm->spoil = [&](std::byte* record) {
    const int32_t rank = 1, code = ZERO_ERR_MEMORY;
    memcpy(record + EchoComm::kFailedAt, &rank, sizeof rank);
    memcpy(record + EchoComm::kCodeAt, &code, sizeof code);
    memcpy(record + EchoComm::kWhyBytesAt, &huge, sizeof huge);
  };
  const Status status = scene.call.vote("vote", {});
  EXPECT_EQ(status.code(), ZERO_ERR_PEER);
  EXPECT_LT(status.text().size(), 4096u);
}

TEST(Call, progress_reaches_the_comm) {
  Scene scene;
  scene.call.progress();
  EXPECT_EQ(scene.comm->progress, 1);
}

TEST(Call, operations_have_the_names_of_their_functions) {
  std::set<std::string> names;
  for (uint32_t i = 1; i <= static_cast<uint32_t>(Operation::load); ++i) {
    const std::string name = operation_name(static_cast<Operation>(i));
    EXPECT_EQ(name.substr(0, 5), "zero_");
    names.insert(name);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Operation::load));
  EXPECT_STREQ(operation_name(static_cast<Operation>(0)), "an unknown call");
}

}  // namespace
}  // namespace zero
