// SPDX-License-Identifier: Apache-2.0
// A rank dies or gets no memory while state moves. The others get an error, and each of them still
// has what it owned.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <numeric>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "support/points.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int kWorld = 3;
constexpr int64_t kSizes[] = {3000, 5, 400'000, 1000, 7};
constexpr size_t kParams = std::size(kSizes);
const char* const kNames[] = {"a", "b", "c", "d", "e"};

/// One rank of a model whose owners will change.
class Model : public Optim {
 public:
  Model(zero_comm* comm, int32_t partition)
      : Optim(std::shared_ptr<zero_comm>(comm, zero_comm_free), options_with([&](zero_options& o) {
                o.partition = partition;
                o.threads = 1;
              })) {
    std::vector<zero_param> params;
    for (size_t i = 0; i < kParams; i++) {
      data_.emplace_back(kSizes[i], 1.0f);
      grads_.emplace_back(kSizes[i], 0.5f);
      params.push_back(parameter(kNames[i], kSizes[i], data_.back().data(), grads_.back().data()));
      params.back().owner = static_cast<int32_t>(i) % kWorld;
    }
    add(params);
    EXPECT_OK(step());
    for (const int64_t frozen : {0, 1, 4}) freeze(frozen);
  }
  ~Model() { free(); }

  zero_status step() {
    for (auto& grad : grads_) std::iota(grad.begin(), grad.end(), static_cast<float>(rank()));
    return Optim::step();
  }
  zero_status move(int32_t partition) {
    const int32_t owners[kParams] = {1, 2, 0, 0, 2};
    const bool manual = partition == ZERO_PARTITION_MANUAL;
    return zero_rebalance(optim(), manual ? owners : nullptr, manual ? kParams : 0, nullptr);
  }
  /// Returns what this rank owns, with its state. Local.
  std::string owned() const {
    const std::vector<int64_t> triples = Optim::owned(rank());
    std::string all;
    for (size_t i = 0; i < triples.size(); i += 3) {
      const int64_t param = triples[i], first = triples[i + 1], count = triples[i + 2];
      all += text(param, ' ', first, ' ', count, '\n');
      std::vector<float> values(static_cast<size_t>(count));
      for (const char* name : {"exp_avg", "exp_avg_sq"}) {
        EXPECT_OK(zero_state_get(optim(), param, name, first, count, values.data()));
        all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      }
    }
    return all;
  }
  std::string params() const {
    std::string all;
    for (const auto& one : data_)
      all.append(reinterpret_cast<const char*>(one.data()), one.size() * sizeof(float));
    return all;
  }
  bool consistent() const {
    auto failure = initialized<zero_failure>();
    EXPECT_OK(zero_comm_failure(comm(), &failure));
    return failure.params_consistent != 0;
  }

 private:
  std::vector<std::vector<float>> data_, grads_;
};

std::vector<RankEnd> moves(int32_t partition, const Victim& victim) {
  const Meeting meeting(CommKind::local, kWorld);
  return run_struck_ranks(kWorld, [&](int rank) {
    Model model(meeting.join(rank), partition);
    const std::string before = model.owned();
    watch_points(victim.point, rank == victim.rank ? die : nullptr);
    const zero_status status = model.move(partition);
    const std::string said = text(zero_status_name(status), ' ', last());
    stop_watching_points();
    const std::string now = model.owned();
    return text(status == ZERO_OK ? "moved"
                : now == before   ? "stayed"
                                  : "torn",
                model.consistent() ? " consistent " : " torn parameters ", said);
  });
}

TEST(RebalanceFaults, a_rank_that_dies_while_state_moves_leaves_the_others_with_what_they_owned) {
  int deaths = 0;
  for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_MANUAL}) {
    const Meeting meeting(CommKind::local, kWorld);
    const PointsOfRanks points = points_of_ranks(kWorld, [&](int rank) {
      Model model(meeting.join(rank), partition);
      const std::string before = model.owned();
      watch_points();
      EXPECT_OK(model.move(partition));
      stop_watching_points();
      EXPECT_NE(model.owned(), before) << rank;
      return std::string();
    });
    for (const auto& of_rank : points) ASSERT_GT(of_rank.size(), 10u);
    for_each_victim(points, 3, [&](const Victim& victim) {
      const std::vector<RankEnd> ends = moves(partition, victim);
      deaths += ends[static_cast<size_t>(victim.rank)].signal != 0;
      const std::string first = ends[victim.rank == 0 ? 1 : 0].result.substr(0, 5);
      for_each_survivor(ends, victim.rank, [&](int, const std::string& said) {
        if (!contains(said, "moved")) {
          EXPECT_TRUE(
              contains(said, "stayed consistent ZERO_ERR_PEER_DEAD", text("rank ", victim.rank)));
        }
        EXPECT_EQ(said.substr(0, 5), first) << "all move or none does";
      });
    });
  }
  EXPECT_GT(deaths, 20);
}

int left_to_pass = -1;  // mmaps before the one that fails; -1: none fails

void* refuse(void* address, size_t bytes, int protection, int flags, int fd, int64_t offset) {
  if (left_to_pass < 0 || left_to_pass-- > 0)
    return real_system_calls().mmap(address, bytes, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

/// One rank's training, in which the victim's first mmap of the call fails, then its second, and so
/// on. Returns the final parameters.
std::string train(const Meeting& meeting, int32_t partition, int rank, int victim) {
  Model model(meeting.join(rank), partition);
  replace_call(&SystemCalls::mmap, refuse);
  const std::string before = model.owned();
  int failures = 0;
  for (;; failures++) {
    left_to_pass = rank == victim ? failures : -1;
    const zero_status status = model.move(partition);
    left_to_pass = -1;
    if (status == ZERO_OK) break;
    EXPECT_TRUE(ends(status, rank == victim ? ZERO_ERR_MEMORY : ZERO_ERR_PEER, "no memory for"));
    EXPECT_TRUE(rank == victim || says(text("rank ", victim, " in zero_rebalance")));
    EXPECT_TRUE(model.owned() == before);
    EXPECT_TRUE(model.consistent());
  }
  EXPECT_EQ(failures >= 2, victim >= 0) << failures;
  EXPECT_NE(model.owned(), before);
  EXPECT_OK(model.step());
  return model.params();
}

TEST(RebalanceFaults, memory_that_one_rank_does_not_get_leaves_all_as_it_was_and_training_goes_on) {
  for (const int32_t partition : {ZERO_PARTITION_EVEN, ZERO_PARTITION_MANUAL}) {
    std::string sound;
    for (int victim = -1; victim < kWorld; victim++) {
      SCOPED_TRACE(victim);
      const Meeting meeting(CommKind::local, kWorld);
      for (const std::string& params : run_sound_ranks(RankKind::processes, kWorld, [&](int rank) {
             return train(meeting, partition, rank, victim);
           })) {
        if (sound.empty()) sound = params;
        EXPECT_FALSE(params.empty());
        EXPECT_TRUE(params == sound);
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
