// SPDX-License-Identifier: Apache-2.0
// Ranks in a real control group of 300 MiB, if the system allows one, request more memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// A control group that processes can enter. The destructor removes it.
class ControlGroup {
 public:
  ControlGroup() {
    const bool second = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
    const std::string above = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    folder_ = above + "/" + unique_name();
    std::error_code error;
    std::filesystem::create_directory(folder_, error);
    const std::string limit = folder_ + (second ? "/memory.max" : "/memory.limit_in_bytes");
    if (error || !std::filesystem::exists(limit)) return;
    write_file(limit, std::to_string(300 * kMiB));
    made_ = read_file(limit) == std::to_string(300 * kMiB) + "\n";
    const std::string swap =
        folder_ + (second ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes");
    if (std::filesystem::exists(swap)) write_file(swap, std::to_string(second ? 0 : 300 * kMiB));
  }
  ~ControlGroup() { rmdir(folder_.c_str()); }
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  bool made() const { return made_; }
  void enter() const { write_file(folder_ + "/cgroup.procs", std::to_string(getpid())); }

 private:
  std::string folder_;
  bool made_ = false;
};

TEST(Container, an_arena_beyond_the_limit_is_refused_and_nobody_is_killed) {
  const ControlGroup group;
  if (!group.made()) GTEST_SKIP() << "no control group can be made here";
  const Meeting meeting(CommKind::local, 2);
  run_sound_ranks(RankKind::processes, 2, [&](int rank) -> std::string {
    group.enter();
    zero_comm* const comm = meeting.join(rank);
    void* data = nullptr;
    for (const int32_t kind : {ZERO_MEMORY_SHARED, ZERO_MEMORY_PER_RANK}) {
      const size_t bytes = kind == ZERO_MEMORY_SHARED ? 400 * kMiB : 200 * kMiB;
      EXPECT_TRUE(ends(zero_arena_alloc(comm, bytes, kind, &data), ZERO_ERR_MEMORY,
                       "419430400 bytes of an arena on 2 ranks: /sys/fs/cgroup/"));
    }
    EXPECT_OK(zero_arena_alloc(comm, 100 * kMiB, ZERO_MEMORY_PER_RANK, &data));
    EXPECT_OK(zero_arena_free(data));
    EXPECT_OK(zero_comm_free(comm));
    return "";
  });
}

// Each rank alone would have room for its copy.
TEST(Container, copies_of_several_ranks_beyond_the_limit_are_refused_and_training_goes_on) {
  const ControlGroup group;
  if (!group.made()) GTEST_SKIP() << "no control group can be made here";
  const Meeting meeting(CommKind::local, 2);
  const Scratch scratch;
  run_sound_ranks(RankKind::processes, 2, [&](int rank) -> std::string {
    group.enter();
    zero_comm* const comm = meeting.join(rank);
    constexpr int64_t kCount = 25 << 18;  // 25 MiB
    std::vector<float> data(kCount, 1), grad(kCount, 1);
    Optim optim(comm);
    optim.add(parameter("w", kCount, data.data(), grad.data()));
    EXPECT_OK(optim.step());
    EXPECT_EQ(zero_state_save_begin(optim.optim(), (scratch / "begun").c_str(), nullptr),
              ZERO_ERR_MEMORY);
    EXPECT_TRUE(says("bytes of a save's copy of the state on 2 ranks: /sys/fs/cgroup/"));
    EXPECT_OK(optim.step());
    optim.free();
    EXPECT_OK(zero_comm_free(comm));
    return "";
  });
}

// Each rank alone would have room.
TEST(Container, states_of_several_ranks_beyond_the_limit_are_refused_and_nobody_is_killed) {
  const ControlGroup group;
  if (!group.made()) GTEST_SKIP() << "no control group can be made here";
  const std::vector<std::string> ends = run_sound_ranks(RankKind::processes, 4, [&](int) {
    group.enter();
    const std::shared_ptr<zero_comm> comm = alone();
    constexpr int64_t kCount = 12 << 20;  // 96 MiB of state
    const std::unique_ptr<float[], decltype(&free)> data(
        static_cast<float*>(calloc(kCount, sizeof(float))), free);
    zero_optim* optim = nullptr;
    EXPECT_OK(zero_create(&optim, comm.get(), nullptr));
    const zero_param param = parameter("w", kCount, data.get());
    EXPECT_OK(zero_register_params(optim, nullptr, &param, 1, nullptr));
    const zero_status sealed = zero_seal(optim);
    if (sealed != ZERO_OK) {
      EXPECT_EQ(sealed, ZERO_ERR_MEMORY);
      EXPECT_TRUE(says("/sys/fs/cgroup/"));
    }
    sleep(1);  // until all ranks hold their memory
    EXPECT_OK(zero_free(optim));
    return std::string(zero_status_name(sealed));
  });
  EXPECT_TRUE(std::ranges::count(ends, "ZERO_ERR_MEMORY") > 0);
}

}  // namespace
}  // namespace zero::test
