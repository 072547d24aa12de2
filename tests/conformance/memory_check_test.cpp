// SPDX-License-Identifier: Apache-2.0
// The memory that several ranks request from one control group or one machine is summed before any
// of them allocates it. Ranks are threads, whose groups are files that the test writes.
#include "comm/memory_check.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/create.h"
#include "support/comms.h"
#include "support/optim.h"
#include "support/scratch.h"
#include "support/statuses.h"
#include "support/system_calls.h"

namespace zero::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

thread_local std::string group;  // of this rank, alone or with others
std::string* root = nullptr;

/// A machine with `available` MiB, and groups with these limits in MiB.
class Machine {
 public:
  explicit Machine(uint64_t available, const std::map<std::string, uint64_t>& groups = {}) {
    root_ = folder_.path();
    root = &root_;
    put("/proc/meminfo", text("MemAvailable: ", available * 1024, " kB\n"));
    put("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    for (const auto& [name, limit] : groups) {
      put("/proc/self/cgroup" + name, text("0::/", name, "\n"));
      put(text("/sys/fs/cgroup/", name, "/memory.max"), text(limit * kMiB, "\n"));
      put(text("/sys/fs/cgroup/", name, "/memory.current"), "0\n");
    }
  }

 private:
  void put(const std::string& path, const std::string& words) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    write_file(root_ + path, words);
  }

  static int open(int directory, const char* path, int flags, unsigned mode) {
    const std::string_view asked = path;
    std::string given = path;
    if (asked == "/proc/self/cgroup")
      given = *root + given + group;
    else if (asked == "/proc/meminfo" || asked == "/proc/self/mountinfo" ||
             asked.starts_with("/sys/fs/cgroup/"))
      given = *root + given;
    return real_system_calls().openat(directory, given.c_str(), flags, mode);
  }

  const Scratch folder_;
  std::string root_;
  const ReplacedCall opens_{&SystemCalls::openat, open};
};

/// Returns the errors of ranks that request these bytes and are in these groups.
std::vector<std::string> want_bytes(const std::vector<uint64_t>& bytes,
                                    const std::vector<std::string>& groups) {
  const auto world = static_cast<int32_t>(bytes.size());
  return run_sound_ranks(RankKind::threads, world, [&, name = unique_name()](int rank) {
    const auto me = static_cast<size_t>(rank);
    group = groups.empty() ? "" : groups[me];
    const std::shared_ptr<Comm> seat = made(create_local(name, rank, world, {}));
    Call call = std::move(seat->begin(Operation::step)).value();
    return outcome(check_memory_of_ranks(call, bytes[me], "copies"));
  });
}

std::vector<std::string> want(std::vector<uint64_t> mib,
                              const std::vector<std::string>& groups = {}) {
  for (uint64_t& wanted : mib) wanted *= kMiB;
  return want_bytes(mib, groups);
}

using Told = std::vector<std::string>;

TEST(MemoryCheck, what_the_ranks_of_a_machine_want_is_summed) {
  const Machine machine(300);
  EXPECT_EQ(want({100, 100, 100}), Told(3, "ok"));
  for (const std::string& said : want({100, 101, 100}))
    EXPECT_EQ(said,
              "ZERO_ERR_MEMORY: no memory for 315621376 bytes of copies on 3 ranks: the "
              "memory available on this machine is 314572800");
}

TEST(MemoryCheck, each_group_is_compared_with_what_its_own_ranks_want) {
  const Machine machine(1000, {{"one", 100}, {"two", 300}});
  EXPECT_EQ(want({50, 150, 50, 150}, {"one", "two", "one", "two"}), Told(4, "ok"));
  EXPECT_EQ(want({100, 300, 0, 0}, {"one", "two", "one", "two"}), Told(4, "ok"));
  const Told said = want({50, 100, 51, 100}, {"one", "two", "one", "two"});
  for (const size_t rank : {0, 2})
    EXPECT_EQ(said[rank],
              "ZERO_ERR_MEMORY: no memory for 105906176 bytes of copies on 2 ranks: "
              "/sys/fs/cgroup/one/memory.max leaves 104857600");
  for (const size_t rank : {1, 3})
    EXPECT_TRUE(contains(said[rank], "ZERO_ERR_PEER: rank 0 in zero_step: ZERO_ERR_MEMORY"));
}

TEST(MemoryCheck, limits_are_not_read_for_less_than_64_KiB) {
  const Machine machine(1000, {{"full", 0}});
  EXPECT_EQ(want_bytes({64 * 1024 - 1, 0}, {"full", "full"}), Told(2, "ok"));
  EXPECT_TRUE(contains(want_bytes({64 * 1024, 0}, {"full", "full"})[0], "memory.max leaves 0"));
}

TEST(MemoryCheck, sums_that_overflow_are_too_much) {
  const Machine machine(300);
  for (const std::string& said : want({UINT64_MAX / kMiB, UINT64_MAX / kMiB, 1}))
    EXPECT_TRUE(contains(said, "no memory for 18446744073709551615 bytes"));
}

// If no other rank can address an arena, each rank allocates its own.
TEST(MemoryCheck, arenas_of_any_comm_are_summed) {
  for (const CommKind kind : {CommKind::local, CommKind::user}) {
    const Meeting meeting(kind, 4);
    run_sound_ranks(RankKind::threads, 4, [&](int rank) -> std::string {
      zero_comm* const comm = meeting.join(rank);
      EXPECT_OK(zero_comm_barrier(comm));
      static std::optional<Machine> machine;
      if (rank == 0) machine.emplace(30);
      EXPECT_OK(zero_comm_barrier(comm));
      void* data = nullptr;
      EXPECT_EQ(zero_arena_alloc(comm, 10 * kMiB, ZERO_MEMORY_PER_RANK, &data), ZERO_ERR_MEMORY);
      EXPECT_TRUE(
          says("41943040 bytes of an arena on 4 ranks: the memory available on this machine"));
      EXPECT_OK(zero_arena_alloc(comm, 5 * kMiB, ZERO_MEMORY_PER_RANK, &data));
      EXPECT_OK(zero_arena_free(data));
      EXPECT_OK(zero_comm_barrier(comm));
      if (rank == 0) machine.reset();
      EXPECT_OK(zero_comm_free(comm));
      return "";
    });
  }
}

/// Every rank holds the extras of all ranks. The memory is checked before a byte is read.
TEST(MemoryCheck, the_extras_of_a_checkpoint_are_asked_for_by_all_ranks_before_they_are_read) {
  const Scratch scratch;
  const std::string directory = scratch / "checkpoint";
  const Meeting meeting(CommKind::local, 4);
  run_sound_ranks(RankKind::threads, 4, [&](int rank) -> std::string {
    zero_comm* const comm = meeting.join(rank);
    constexpr int64_t kCount = 1000;
    std::vector<float> data(kCount, 1);
    Optim optim(comm);
    optim.add(parameter("w", kCount, data.data()));
    optim.seal();
    const std::string bytes(4 * kMiB, 'x');
    EXPECT_OK(zero_state_extra_set(optim.optim(), "state", bytes.data(), bytes.size()));
    EXPECT_OK(zero_state_save(optim.optim(), directory.c_str(), nullptr));
    static std::optional<Machine> machine;
    for (const uint64_t available : {40, 80}) {
      EXPECT_OK(zero_comm_barrier(comm));
      if (rank == 0) machine.emplace(available);
      EXPECT_OK(zero_comm_barrier(comm));
      const zero_status loaded = zero_state_load(optim.optim(), directory.c_str(), nullptr);
      EXPECT_EQ(loaded, available == 40 ? ZERO_ERR_MEMORY : ZERO_OK);
      EXPECT_TRUE(loaded == ZERO_OK ||
                  says("bytes of a checkpoint's extras on 4 ranks: the memory"));
      EXPECT_OK(zero_comm_barrier(comm));
      if (rank == 0) machine.reset();
    }
    optim.free();
    EXPECT_OK(zero_comm_free(comm));
    return "";
  });
}

}  // namespace
}  // namespace zero::test
