// SPDX-License-Identifier: Apache-2.0
// Processes on one GPU that reach each other's memory end with bitwise the same values as one
// process on the host. The program itself never opens the GPU, because its children could not open
// it then.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "api/handles.h"
#include "comm/create.h"
#include "comm/nccl/library.h"
#include "equivalence.h"
#include "support/gpu_wanted.h"
#include "support/ranks.h"

namespace zero::test {
namespace {

using Join = std::function<Result<std::shared_ptr<Comm>>(std::shared_ptr<Device>, int rank)>;

std::vector<Outcome> run_processes(const Training& training, const Join& join) {
  const auto body = [&](int rank) -> std::string {
    const Result<std::shared_ptr<Device>> gpu = open_cuda(0);
    if (!gpu.ok()) return "no GPU: " + gpu.failure().text();
    Result<std::shared_ptr<Comm>> seat = join(*gpu, rank);
    if (!seat.ok()) return "error " + seat.failure().text();
    zero_comm* const comm = api::add_handle(std::move(*seat));
    const std::string said = packed(train(training, comm));
    zero_comm_free(comm);
    return said;
  };
  std::vector<Outcome> ranks;
  for (const RankEnd& end : run_ranks(RankKind::processes, training.world, body))
    ranks.push_back(unpacked(end.result));
  return ranks;
}

Training training_of(int world, Where where) {
  Training training = base(world);
  training.where = where;
  training.steps = 5;
  return training;
}

void expect_right(const Training& training, const std::string& what, const Join& join) {
  const std::vector<Outcome> ranks = run_processes(training, join);
  if (!gpu_is_wanted() && ranks[0].error.find("no GPU: ") != std::string::npos)
    GTEST_SKIP() << ranks[0].error;
  expect_equals_reference(training, ranks, what);
}

void expect_right(const Training& training, const std::string& what) {
  const std::string name = unique_name();
  expect_right(training, what, [&](std::shared_ptr<Device> gpu, int rank) {
    return create_local(name, rank, training.world, {}, std::move(gpu));
  });
}

TEST(DeviceProcesses, two_of_nccl_on_one_gpu_end_with_the_bits_of_one_process) {
  constexpr int kOldest = 23000;  // allows two ranks on one GPU
  const Result<const nccl::Library*> library = nccl::library();
  if (!library.ok()) GTEST_SKIP() << library.failure().text();
  if ((*library)->version < kOldest)
    GTEST_SKIP() << "NCCL " << nccl::version_text((*library)->version)
                 << " has no NCCL_MULTI_RANK_GPU_ENABLE, which 2.30 has";
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  // Two numbers have one sum, in whichever order NCCL adds them.
  for (const Where where : {Where::per_rank_arenas, Where::foreign}) {
    const Result<NcclId> id = nccl_unique_id();
    ASSERT_TRUE(id.ok()) << id.failure().text();
    expect_right(training_of(2, where), "two ranks of NCCL",
                 [&](std::shared_ptr<Device> gpu, int rank) {
                   return create_nccl(std::move(gpu), *id, rank, 2, {});
                 });
    if (IsSkipped() || HasFailure()) return;
  }
}

TEST(DeviceProcesses, two_and_four_on_one_gpu_end_with_the_bits_of_one_process) {
  for (const int world : {2, 4}) {
    for (const Where where : {Where::per_rank_arenas, Where::foreign, Where::mixed}) {
      expect_right(training_of(world, where), std::to_string(world) + " processes");
      if (IsSkipped() || HasFailure()) return;
    }
  }
}

TEST(DeviceProcesses, clipping_skipping_and_masters_end_with_the_bits_of_one_process) {
  Training clipped = training_of(2, Where::per_rank_arenas);
  clipped.max_grad_norm = 0.5;
  expect_right(clipped, "clipped");
  if (IsSkipped()) return;
  Training remainders = training_of(2, Where::per_rank_arenas);
  remainders.dtypes = {{ZERO_BFLOAT16, ZERO_BFLOAT16}};
  remainders.master = ZERO_MASTER_REMAINDER;
  expect_right(remainders, "bf16 and remainders");
  Training masters = training_of(2, Where::per_rank_arenas);
  masters.dtypes = {{ZERO_FLOAT16, ZERO_FLOAT16}};
  expect_right(masters, "fp16 and masters");
}

TEST(DeviceProcesses, what_a_process_says_is_what_it_found) {
  Outcome outcome{.params = {1, 2.5, 3}, .norms = {0.5}};
  EXPECT_EQ(unpacked(packed(outcome)).params, outcome.params);
  EXPECT_EQ(unpacked(packed(outcome)).norms, outcome.norms);
  outcome.error = "words";
  EXPECT_EQ(unpacked(packed(outcome)).error, "error words");
}

}  // namespace
}  // namespace zero::test
