// SPDX-License-Identifier: Apache-2.0
// How gradients and parameters travel over NCCL: in place by owner if the parts of owners differ
// greatly in size, and in as few launches as their dependencies allow.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/text.h"
#include "equivalence.h"
#include "floats.h"

namespace zero::test {
namespace {

/// Returns a training in per-rank arenas with the layout of the plan.
Training in_arenas(int world, std::vector<int64_t> sizes) {
  Training training = base(world);
  training.sizes = std::move(sizes);
  training.where = Where::per_rank_arenas;
  training.padded = true;
  training.steps = 4;
  return training;
}

Training whole_tensors(int world, std::vector<int64_t> sizes) {
  Training training = in_arenas(world, std::move(sizes));
  training.partition = ZERO_PARTITION_GREEDY;
  training.others_sum = true;
  return training;
}

struct Seen {
  int64_t to_owners, launches;
};

/// Counts calls in a training that ends with bitwise the same values as one process.
Seen trained(const Training& training, uint64_t seed, const std::string& what) {
  const Meeting meeting(CommKind::nccl, training.world, {.seed = seed});
  expect_equals_reference(training, run(training, meeting),
                          what + ", seed " + std::to_string(seed));
  return {meeting.nccl().knobs().to_owners, meeting.nccl().knobs().launches};
}

TEST(DeviceTravel, whole_tensors_of_unlike_owners_go_to_each_by_itself_with_the_same_bits) {
  uint64_t seed = 0;
  for (const int world : {2, 3}) {
    for (const double max_norm : {0.0, 0.1}) {
      for (const int batches : {1, 2}) {
        for (const bool overlaps : {false, true}) {
          Training training = whole_tensors(world, {5000, 100, 3, 50, 1});
          training.max_grad_norm = max_norm;
          training.micro_batches = batches;
          training.overlaps = overlaps;
          const std::string what = text("unlike, clipped at ", max_norm, ", micro-batches ",
                                        batches, overlaps ? ", overlapped" : "");
          EXPECT_GT(trained(training, ++seed, what).to_owners, 0) << what;
        }
      }
    }
  }
}

TEST(DeviceTravel, both_kinds_of_dtypes_go_to_owners_of_their_own_sizes) {
  Training training = whole_tensors(2, {3000, 5000, 100, 3, 50, 700});
  training.dtypes = {{ZERO_FLOAT32, ZERO_FLOAT32}, {ZERO_FLOAT64, ZERO_FLOAT64}};
  for (uint64_t seed = 1; seed <= 8; seed++) trained(training, seed, "two dtypes");
}

TEST(DeviceTravel, whole_tensors_of_like_owners_travel_together) {
  EXPECT_EQ(trained(whole_tensors(2, {500, 500, 100, 100}), 1, "like").to_owners, 0);
}

/// Returns the launches for parameters that need this number of transfers, in place.
int64_t launches(int transfers, double max_grad_norm = 0) {
  Training training = in_arenas(2, {2048 * transfers - 100});
  training.bucket_bytes = 4096;
  training.max_grad_norm = max_grad_norm;
  return trained(training, 1, std::to_string(transfers)).launches;
}

TEST(DeviceTravel, eight_transfers_are_one_launch) {
  EXPECT_EQ(launches(8), launches(1));
  const int64_t ranks_and_steps = 2 * 4;
  EXPECT_EQ(launches(9) - launches(8), ranks_and_steps * 2);
  EXPECT_EQ(launches(20) - launches(8), ranks_and_steps * 4);
}

TEST(DeviceTravel, sums_that_are_all_waited_for_are_one_launch) {
  EXPECT_EQ(launches(20, 0.1) - launches(8, 0.1), 2 * 4 * 2) << "those of gathers";
}

// ---- Arenas that NCCL maps on all ranks. Every training ends with the same bits with and without
// them. If the memory is at different places on ranks, no rank uses them.

constexpr Devices kWithWindows{.seed = 1};

Training small() {
  Training training = in_arenas(2, {700, 3, 2100, 1, 1300});
  training.bucket_bytes = 4096;
  return training;
}

TEST(DeviceWindows, transfers_in_them_end_with_the_bits_of_one_process) {
  for (const bool clips : {false, true}) {
    for (const bool mapped : {true, false}) {
      Training training = small();
      if (clips) training.max_grad_norm = 0.1;
      const Meeting meeting(CommKind::nccl, 2, kWithWindows);
      FakeNcclKnobs& knobs = meeting.nccl().knobs();
      knobs.has_windows = mapped;
      expect_equals_reference(training, run(training, meeting), "in windows");
      EXPECT_EQ(knobs.reduced_in_windows > 0, mapped);
      EXPECT_EQ(knobs.gathered_by_engines > 0, mapped);
      EXPECT_EQ(knobs.gathered_in_windows, 0);
    }
  }
}

int64_t mapped_transfers(const Meeting& meeting) {
  const FakeNcclKnobs& knobs = meeting.nccl().knobs();
  return knobs.reduced_in_windows + knobs.gathered_by_engines;
}

TEST(DeviceWindows, nothing_in_foreign_memory_is_mapped) {
  Training training = small();
  training.where = Where::foreign;
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  expect_equals_reference(training, run(training, meeting), "foreign");
  EXPECT_EQ(mapped_transfers(meeting), 0);
}

/// A parameter of ones and its gradient, trained by an optimizer of its own.
class Trained : public Floats {
 public:
  static constexpr int64_t kCount = 4096;
  static constexpr size_t kBytes = sizeof(float) * kCount;

  Trained(zero_comm* comm, float* data, float* grad)
      : Floats(comm, plain_sgd(kRate), 1, kCount, data, grad) {
    put_all(std::vector<float>(kCount, 1.0f));
    give_all(std::vector<float>(kCount, static_cast<float>(1 + rank())));
  }

  /// Takes one step. Returns the first and the last element.
  std::string step() {
    EXPECT_OK(Floats::step());
    const std::vector<float> all = values();
    return std::to_string(all.front()) + " " + std::to_string(all.back());
  }

  /// Captures a step for launches of a graph.
  void capture_step() {
    seal();
    EXPECT_OK(chaos().begin_capture(stream()));
    EXPECT_OK(Floats::step());
    EXPECT_TRUE(chaos().end_capture(stream()).ok());
  }

 private:
  static constexpr double kRate = 1e-3;
};

using Arenas = std::deque<Arena>;

/// Expects body(comm, arenas) to return `said` on each rank. Each of the two arenas has room for
/// four such parameters.
void expect_said(const Meeting& meeting, const std::string& said,
                 const std::function<std::string(zero_comm*, const Arenas&)>& body) {
  for (const std::string& result : results_of(meeting, [&](zero_comm*comm, int) {
         Arenas arenas;
         for (int i = 0; i < 2; i++) arenas.emplace_back(comm, 4 * Trained::kBytes);
         return body(comm, arenas);
       }))
    EXPECT_EQ(result, said);
}

/// Places the tensors at different offsets on each rank.
Trained apart(zero_comm* comm, const Arenas& arenas) {
  const auto at = static_cast<ptrdiff_t>(1 + zero_comm_rank(comm)) * Trained::kCount;
  return Trained(comm, arenas[0].floats() + at, arenas[1].floats() + at);
}

const char* const kStepped = "0.998500 0.998500";  // 1 - 0.001 * (1 + 2) / 2
const char* const kSteppedTwice = "0.997000 0.997000";

TEST(DeviceWindows, an_arena_is_mapped_for_one_use_alone) {
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  expect_said(meeting, kStepped, [&](zero_comm* comm, const Arenas& arenas) {
    float* const both = arenas[0].floats();
    return Trained(comm, both, both + Trained::kCount).step();
  });
  EXPECT_GT(meeting.nccl().knobs().reduced_in_windows, 0);
  EXPECT_EQ(meeting.nccl().knobs().gathered_by_engines, 0);
}

TEST(DeviceWindows, ranks_whose_memory_is_at_different_places_go_without) {
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  expect_said(meeting, kStepped,
              [&](zero_comm* comm, const Arenas& arenas) { return apart(comm, arenas).step(); });
  EXPECT_EQ(mapped_transfers(meeting), 0);
}

TEST(DeviceWindows, in_a_mapped_arena_memory_at_different_places_travels_packed) {
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  const FakeNcclKnobs& knobs = meeting.nccl().knobs();
  expect_said(meeting, kStepped, [&](zero_comm* comm, const Arenas& arenas) {
    Trained same(comm, arenas[0].floats(), arenas[1].floats());
    const std::string first = same.step();
    const int64_t in_windows = knobs.gathered_by_engines;
    EXPECT_EQ(apart(comm, arenas).step(), kStepped);
    EXPECT_EQ(knobs.gathered_by_engines, in_windows);
    return first;
  });
  EXPECT_EQ(knobs.gathered_by_engines, 2);
}

TEST(DeviceWindows, an_optimizer_goes_on_packed_when_another_one_has_its_arenas_mapped) {
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  const FakeNcclKnobs& knobs = meeting.nccl().knobs();
  expect_said(meeting, "0.995500 0.995500", [&](zero_comm* comm, const Arenas& arenas) {
    Trained other = apart(comm, arenas);
    EXPECT_EQ(other.step(), kStepped);
    EXPECT_EQ(other.step(), kSteppedTwice);
    EXPECT_EQ(knobs.gathered_by_engines, 0);
    EXPECT_OK(zero_comm_barrier(comm));
    Trained same(comm, arenas[0].floats(), arenas[1].floats());
    EXPECT_EQ(same.step(), kStepped);
    const int64_t in_windows = knobs.gathered_by_engines;
    EXPECT_EQ(in_windows, 2);
    const std::string third = other.step();
    EXPECT_EQ(knobs.gathered_by_engines, in_windows);
    return third;
  });
}

TEST(DeviceWindows, nothing_is_mapped_by_a_call_that_is_captured) {
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  expect_said(meeting, kStepped, [&](zero_comm* comm, const Arenas& arenas) {
    Trained trained(comm, arenas[0].floats(), arenas[1].floats());
    const auto expect_windows = [&](int64_t windows) {
      EXPECT_OK(zero_comm_barrier(comm));
      EXPECT_EQ(meeting.nccl().knobs().windows, windows);
      EXPECT_OK(zero_comm_barrier(comm));
    };
    trained.capture_step();
    expect_windows(2);  // the parameters' windows, opened by the seal
    const std::string stepped = trained.step();
    expect_windows(4);
    return stepped;
  });
}

TEST(DeviceWindows, where_one_rank_has_none_no_rank_maps_its_arena) {
  const Meeting meeting(CommKind::nccl, 2, kWithWindows);
  meeting.nccl().device(1)->refuse_shared(Status(ZERO_ERR_SYSTEM, "no descriptors here"));
  expect_said(meeting, kStepped, [&](zero_comm* comm, const Arenas& arenas) {
    return Trained(comm, arenas[0].floats(), arenas[1].floats()).step();
  });
  EXPECT_EQ(mapped_transfers(meeting), 0);
}

}  // namespace
}  // namespace zero::test
