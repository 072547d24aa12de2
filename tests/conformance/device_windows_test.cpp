// SPDX-License-Identifier: Apache-2.0
// Arenas that NCCL maps on all ranks: every training ends with the same bits with and without, and
// ranks whose memory is not at the same place everywhere go without together.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/handles.h"
#include "device_training.h"
#include "support/expect.h"

namespace zero::test {
namespace {

constexpr uint64_t kWithWindows = 1;  // a seed

Training in_arenas() {
  Training training = base(2);
  training.sizes = {700, 3, 2100, 1, 1300};
  training.bucket_bytes = 4096;
  training.where = Where::per_rank_arenas;
  training.padded = true;
  training.steps = 4;
  return training;
}

TEST(DeviceWindows, transfers_in_them_end_with_the_bits_of_one_process) {
  for (const bool clips : {false, true}) {
    for (const bool mapped : {true, false}) {
      Training training = in_arenas();
      if (clips) training.max_grad_norm = 0.1;
      const NcclRanks ranks(2, kWithWindows);
      ranks.knobs().has_windows = mapped;
      expect_equals_reference(training, run_together(training, ranks), "in windows");
      EXPECT_EQ(ranks.knobs().reduced_in_windows > 0, mapped);
      EXPECT_EQ(ranks.knobs().gathered_by_engines > 0, mapped);
      EXPECT_EQ(ranks.knobs().gathered_in_windows, 0);
    }
  }
}

TEST(DeviceWindows, nothing_in_foreign_memory_is_mapped) {
  Training training = in_arenas();
  training.where = Where::foreign;
  const NcclRanks ranks(2, kWithWindows);
  expect_equals_reference(training, run_together(training, ranks), "foreign");
  EXPECT_EQ(ranks.knobs().reduced_in_windows + ranks.knobs().gathered_by_engines, 0);
}

/// A parameter with its gradient, trained by an optimizer of its own.
class Trained {
 public:
  static constexpr int64_t kCount = 4096;
  static constexpr size_t kBytes = sizeof(float) * kCount;

  Trained(zero_comm* comm, const std::shared_ptr<Device>& device, std::byte* data, std::byte* grad)
      : device_(device), data_(data) {
    const std::vector<float> values(kCount, 1.0f);
    const std::vector<float> grads(kCount, static_cast<float>(1 + zero_comm_rank(comm)));
    EXPECT_TRUE(device->copy(nullptr, data, values.data(), kBytes).ok());
    EXPECT_TRUE(device->copy(nullptr, grad, grads.data(), kBytes).ok());
    auto options = initialized<zero_options>();
    options.optimizer = ZERO_OPTIMIZER_SGD;
    EXPECT_EQ(zero_create(&optim_, comm, &options), ZERO_OK) << zero_last_error();
    auto param = initialized<zero_param>();
    param.name = "w";
    param.shape = &kCount;
    param.ndim = 1;
    param.data = data;
    param.grad = grad;
    EXPECT_EQ(zero_register_params(optim_, nullptr, &param, 1, nullptr), ZERO_OK);
  }
  ~Trained() { zero_free(optim_); }

  /// Of one step: what the first and the last element have become.
  std::string step() {
    EXPECT_EQ(zero_step(optim_, nullptr), ZERO_OK) << zero_last_error();
    std::vector<float> values(kCount);
    EXPECT_TRUE(device_->copy(nullptr, values.data(), data_, kBytes).ok());
    return std::to_string(values.front()) + " " + std::to_string(values.back());
  }

  /// A step that a launch of a graph would make.
  void capture_step() {
    const auto chaos = std::static_pointer_cast<ChaosDevice>(device_);
    const Stream stream = make_stream(device_).value();
    EXPECT_EQ(zero_seal(optim_), ZERO_OK) << zero_last_error();
    EXPECT_TRUE(chaos->begin_capture(stream.handle()).ok());
    auto options = initialized<zero_step_options>();
    options.stream = stream.handle();
    EXPECT_EQ(zero_step(optim_, &options), ZERO_OK) << zero_last_error();
    EXPECT_TRUE(chaos->end_capture(stream.handle()).ok());
  }

 private:
  const std::shared_ptr<Device> device_;
  std::byte* const data_;
  zero_optim* optim_ = nullptr;
};

/// What body(comm, device, arenas) says on each rank, with so many arenas that each have room for
/// four such parameters.
template <class Body>
std::vector<std::string> with_arenas(const NcclRanks& ranks, size_t count, const Body& body) {
  return run_sound_ranks(RankKind::threads, 2, [&](int rank) -> std::string {
    zero_comm* const comm = api::add_handle(ranks.join(rank).value());
    std::vector<std::byte*> arenas;
    for (size_t i = 0; i < count; i++) {
      void* arena = nullptr;
      EXPECT_EQ(zero_arena_alloc(comm, 4 * Trained::kBytes, ZERO_MEMORY_PER_RANK, &arena), ZERO_OK);
      arenas.push_back(static_cast<std::byte*>(arena));
    }
    const std::string said = body(comm, ranks.device(rank), arenas);
    for (std::byte* const arena : arenas) EXPECT_EQ(zero_arena_free(arena), ZERO_OK);
    zero_comm_free(comm);
    return said;
  });
}

const char* const kStepped = "0.998500 0.998500";  // 1 - 0.001 * (1 + 2) / 2
const char* const kSteppedTwice = "0.997000 0.997000";

TEST(DeviceWindows, an_arena_is_mapped_for_one_use_alone) {
  const NcclRanks ranks(2, kWithWindows);
  for (const std::string& said :
       with_arenas(ranks, 1, [&](zero_comm*comm, const auto&device, const auto&arenas) {
         Trained both(comm, device, arenas[0], arenas[0] + Trained::kBytes);
         return both.step();
       }))
    EXPECT_EQ(said, kStepped);
  EXPECT_GT(ranks.knobs().reduced_in_windows, 0);
  EXPECT_EQ(ranks.knobs().gathered_by_engines, 0);
}

TEST(DeviceWindows, ranks_whose_memory_is_at_different_places_go_without) {
  const NcclRanks ranks(2, kWithWindows);
  for (const std::string& said :
       with_arenas(ranks, 2, [&](zero_comm*comm, const auto&device, const auto&arenas) {
         const size_t at = static_cast<size_t>(zero_comm_rank(comm)) * Trained::kBytes;
         Trained apart(comm, device, arenas[0] + at, arenas[1] + at);
         return apart.step();
       }))
    EXPECT_EQ(said, kStepped);
  EXPECT_EQ(ranks.knobs().reduced_in_windows + ranks.knobs().gathered_by_engines, 0);
}

TEST(DeviceWindows, in_a_mapped_arena_memory_at_different_places_travels_packed) {
  const NcclRanks ranks(2, kWithWindows);
  for (const std::string& said :
       with_arenas(ranks, 2, [&](zero_comm*comm, const auto&device, const auto&arenas) {
         Trained same(comm, device, arenas[0], arenas[1]);
         const std::string first = same.step();
         const int64_t in_windows = ranks.knobs().gathered_by_engines;
         const size_t at = static_cast<size_t>(1 + zero_comm_rank(comm)) * Trained::kBytes;
         Trained apart(comm, device, arenas[0] + at, arenas[1] + at);
         EXPECT_EQ(apart.step(), kStepped);
         EXPECT_EQ(ranks.knobs().gathered_by_engines, in_windows);
         return first;
       }))
    EXPECT_EQ(said, kStepped);
  EXPECT_EQ(ranks.knobs().gathered_by_engines, 2);
}

TEST(DeviceWindows, an_optimizer_goes_on_packed_when_another_one_has_its_arenas_mapped) {
  const NcclRanks ranks(2, kWithWindows);
  for (const std::string& said :
       with_arenas(ranks, 2, [&](zero_comm*comm, const auto&device, const auto&arenas) {
         const size_t at = static_cast<size_t>(1 + zero_comm_rank(comm)) * Trained::kBytes;
         Trained apart(comm, device, arenas[0] + at, arenas[1] + at);
         EXPECT_EQ(apart.step(), kStepped);
         EXPECT_EQ(apart.step(), kSteppedTwice);
         EXPECT_EQ(ranks.knobs().gathered_by_engines, 0);
         EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
         Trained same(comm, device, arenas[0], arenas[1]);
         EXPECT_EQ(same.step(), kStepped);
         const int64_t in_windows = ranks.knobs().gathered_by_engines;
         EXPECT_EQ(in_windows, 2);
         const std::string third = apart.step();
         EXPECT_EQ(ranks.knobs().gathered_by_engines, in_windows);
         return third;
       }))
    EXPECT_EQ(said, "0.995500 0.995500");
}

TEST(DeviceWindows, nothing_is_mapped_by_a_call_that_is_captured) {
  const NcclRanks ranks(2, kWithWindows);
  for (const std::string& said :
       with_arenas(ranks, 2, [&](zero_comm*comm, const auto&device, const auto&arenas) {
         Trained trained(comm, device, arenas[0], arenas[1]);
         trained.capture_step();
         EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
         EXPECT_EQ(ranks.knobs().windows, 2) << "those of parameters, by the seal";
         EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
         const std::string stepped = trained.step();
         EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
         EXPECT_EQ(ranks.knobs().windows, 4);
         EXPECT_EQ(zero_comm_barrier(comm), ZERO_OK);
         return stepped;
       }))
    EXPECT_EQ(said, kStepped);
}

TEST(DeviceWindows, where_one_rank_has_none_no_rank_maps_its_arena) {
  const NcclRanks ranks(2, kWithWindows);
  ranks.device(1)->refuse_shared(Status(ZERO_ERR_SYSTEM, "no descriptors here"));
  for (const std::string& said :
       with_arenas(ranks, 2, [&](zero_comm*comm, const auto&device, const auto&arenas) {
         Trained trained(comm, device, arenas[0], arenas[1]);
         return trained.step();
       }))
    EXPECT_EQ(said, kStepped);
  EXPECT_EQ(ranks.knobs().reduced_in_windows + ranks.knobs().gathered_by_engines, 0);
}

}  // namespace
}  // namespace zero::test
