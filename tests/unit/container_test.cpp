// SPDX-License-Identifier: Apache-2.0
// Limits of containers, read from trees of files like those of machines with control groups of both
// versions. tests/conformance/container_test.cpp uses a real one.
#include "base/container.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/os.h"
#include "support/scratch.h"
#include "support/statuses.h"
#include "support/system_calls.h"

namespace zero {
namespace {

constexpr uint64_t kMiB = 1 << 20;

using Files = std::map<std::string, std::string>;  // contents by path

std::string* root = nullptr;

/// Replaces the system's files by these while it exists.
class System {
 public:
  explicit System(const Files& files) {
    for (const auto& [path, content] : files) {
      const std::filesystem::path place = folder_.path() + path;
      std::filesystem::create_directories(place.parent_path());
      std::ofstream(place) << content;
    }
    root_ = folder_.path();
    root = &root_;
  }

 private:
  test::Scratch folder_;
  std::string root_;
  test::ReplacedCall opens_{&SystemCalls::openat,
                            [](int, const char* path, int flags, unsigned mode) {
                              return ::open((*root + path).c_str(), flags, mode);
                            }};
};

constexpr const char* kMeminfo =
    "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\nSwapFree:  0 kB\n";
constexpr const char* kFirst =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr const char* kSecond = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";

TEST(Container, a_machine_that_tells_nothing_limits_nothing) {
  const System system(Files{});
  EXPECT_TRUE(check_available(uint64_t{1} << 60, "state").ok());
  EXPECT_FALSE(granted_cores());
}

TEST(Container, more_than_the_machine_has_is_refused_before_it_hurts) {
  const System system(Files{{"/proc/meminfo", kMeminfo}});
  EXPECT_TRUE(check_available(4096 * kMiB, "state").ok());
  test::expect_failure(check_available(4096 * kMiB + 1, "state"), ZERO_ERR_MEMORY,
                       "the memory available on this machine is 4294967296");
}

TEST(Container, limits_of_version_2_count_from_the_group_of_the_process_upwards) {
  const std::string own = "/sys/fs/cgroup/jobs/one/", above = "/sys/fs/cgroup/jobs/";
  Files files = {{"/proc/meminfo", kMeminfo},
                 {"/proc/self/mountinfo", kSecond},
                 {"/proc/self/cgroup", "0::/jobs/one\n"},
                 {own + "memory.max", "max\n"},
                 {own + "memory.current", "104857600\n"},
                 {own + "cpu.max", "max 100000\n"},
                 {above + "memory.max", "314572800\n"},
                 {above + "memory.current", "209715200\n"},
                 {above + "cpu.max", "250000 100000\n"}};
  {
    const System system(files);
    EXPECT_TRUE(check_available(100 * kMiB, "state").ok());
    EXPECT_EQ(*check_available(1, "state"), 100 * kMiB) << "the least that any limit leaves";
    test::expect_failure(
        check_available(101 * kMiB, "an arena"), ZERO_ERR_MEMORY,
        "105906176 bytes of an arena: /sys/fs/cgroup/jobs/memory.max leaves 104857600");
    EXPECT_EQ(granted_cores(), 3);
  }
  files[above + "memory.stat"] = "anon 1\nactive_file 10485760\ninactive_file 20971520\n";
  const System system(files);
  EXPECT_TRUE(check_available(130 * kMiB, "cache gives way").ok());
  EXPECT_FALSE(check_available(131 * kMiB, "cache gives way").ok());
}

TEST(Container, swap_counts_as_far_as_the_group_may_use_it) {
  Files files = {{"/proc/meminfo", "MemAvailable: 4194304 kB\nSwapFree: 51200 kB\n"},
                 {"/proc/self/mountinfo", kSecond},
                 {"/proc/self/cgroup", "0::/\n"},
                 {"/sys/fs/cgroup/memory.max", "104857600\n"},
                 {"/sys/fs/cgroup/memory.current", "0\n"},
                 {"/sys/fs/cgroup/memory.swap.max", "20971520\n"},
                 {"/sys/fs/cgroup/memory.swap.current", "10485760\n"}};
  const System system(files);
  EXPECT_TRUE(check_available(110 * kMiB, "state").ok());
  EXPECT_FALSE(check_available(111 * kMiB, "state").ok());
}

TEST(Container, limits_of_version_1_are_found_by_their_controllers) {
  const std::string memory = "/sys/fs/cgroup/memory/one/", cpu = "/sys/fs/cgroup/cpu,cpuacct/two/";
  const System system({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/mountinfo", kFirst},
                       {"/proc/self/cgroup", "5:memory:/one\n3:cpu,cpuacct:/two\n0::/three\n"},
                       {memory + "memory.limit_in_bytes", "314572800\n"},
                       {memory + "memory.usage_in_bytes", "209715200\n"},
                       {memory + "memory.memsw.limit_in_bytes", "9223372036854771712\n"},
                       {memory + "memory.stat", "inactive_file 7\ntotal_inactive_file 1048576\n"},
                       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                       {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                       {cpu + "cpu.cfs_quota_us", "200000\n"},
                       {cpu + "cpu.cfs_period_us", "100000\n"}});
  EXPECT_TRUE(check_available(101 * kMiB, "state").ok());
  test::expect_failure(check_available(102 * kMiB, "state"), ZERO_ERR_MEMORY,
                       memory + "memory.limit_in_bytes leaves 105906176");
  EXPECT_EQ(granted_cores(), 2);
}

// As Docker mounts it: the path is the host's, and its folder is mounted as the root.
constexpr const char* kPart =
    "35 31 0:32 /docker/a1b2 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";

TEST(Container, the_number_that_version_1_has_for_no_limit_is_none) {
  const System system(
      Files{{"/proc/meminfo", kMeminfo},
            {"/proc/self/mountinfo", kFirst},
            {"/proc/self/cgroup", "4:memory:/\n"},
            {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
            {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n"}});
  EXPECT_EQ(memory_limits().size(), 1u);  // that of the machine
}

TEST(Container, a_group_whose_part_alone_is_mounted_is_found) {
  const System system({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/mountinfo", kPart},
                       {"/proc/self/cgroup", "5:memory:/docker/a1b2\n"},
                       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n"}});
  EXPECT_TRUE(check_available(kMiB, "state").ok());
  EXPECT_FALSE(check_available(kMiB + 1, "state").ok());
}

TEST(Container, a_group_whose_name_begins_as_that_of_what_is_mounted_is_outside_of_it) {
  const System system({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/mountinfo", kPart},
                       {"/proc/self/cgroup", "5:memory:/docker/a1b2c3/inner\n"},
                       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n"}});
  EXPECT_FALSE(check_available(kMiB + 1, "state").ok());
}

TEST(Container, a_group_outside_of_what_is_mounted_is_not_looked_for) {
  const System system({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/mountinfo", kSecond},
                       {"/proc/self/cgroup", "0::/../other\n"},
                       {"/sys/fs/cgroup/memory.max", "1048576\n"}});
  EXPECT_FALSE(check_available(kMiB + 1, "state").ok());
}

TEST(Container, unreadable_texts_limit_nothing) {
  const System system({{"/proc/meminfo", "MemAvailable:\n\n: :"},
                       {"/proc/self/mountinfo", "- - -\n1 2 3 - cgroup2\n" + std::string(kSecond)},
                       {"/proc/self/cgroup", "::\n0:\nx\n"},
                       {"/sys/fs/cgroup/memory.max", "\n"},
                       {"/sys/fs/cgroup/cpu.max", "100000\n"}});
  EXPECT_TRUE(check_available(uint64_t{1} << 60, "state").ok());
  EXPECT_FALSE(granted_cores());
}

}  // namespace
}  // namespace zero
