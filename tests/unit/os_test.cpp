// SPDX-License-Identifier: Apache-2.0
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "support/system_calls.h"

namespace zero {
namespace {

int closes = 0;

TEST(SystemCalls, every_member_is_set) {
  void* members[sizeof(SystemCalls) / sizeof(void*)];
  static_assert(sizeof members == sizeof(SystemCalls));
  std::memcpy(members, &real_system_calls(), sizeof members);
  for (size_t i = 0; i < std::size(members); ++i) EXPECT_NE(members[i], nullptr) << "member " << i;
}

TEST(SystemCalls, a_test_can_make_one_call_fail_and_take_it_back) {
  const Fd fd(os().memfd_create("os_test", MFD_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  EXPECT_EQ(os().fsync(fd.get()), 0);
  {
    const test::ReplacedCall replaced(&SystemCalls::fsync, [](int) {
      errno = EIO;
      return -1;
    });
    EXPECT_EQ(os().fsync(fd.get()), -1);
    EXPECT_EQ(errno, EIO);
  }
  EXPECT_EQ(os().fsync(fd.get()), 0);
}

TEST(SystemCalls, files_keep_what_is_written_at_an_offset) {
  const Fd fd(os().memfd_create("os_test", MFD_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  const int64_t far = (int64_t{1} << 32) + 5;  // an offset that needs more than 32 bits
  ASSERT_EQ(os().pwrite(fd.get(), "zero", 4, far), 4);
  char back[4];
  ASSERT_EQ(os().pread(fd.get(), back, 4, far), 4);
  EXPECT_EQ(std::memcmp(back, "zero", 4), 0);
  struct stat info = {};
  ASSERT_EQ(os().fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_size, far + 4);
  ASSERT_EQ(os().ftruncate(fd.get(), 100), 0);
  ASSERT_EQ(os().fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_size, 100);
}

/// Makes renameat2 fail in this process from now on, as on a system without it.
bool forbid_renameat2() {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SystemCalls, a_rename_without_flags_needs_no_renameat2) {
  char directory[] = "/tmp/zero_os_test_XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const int at = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // not an Fd: forks close it
  ASSERT_EQ(os().mkdirat(at, "a", 0700), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_renameat2()) _exit(2);
    const bool refused = os().renameat2(at, "a", at, "b", 1) == -1 && errno == ENOSYS;
    _exit(refused && os().renameat2(at, "a", at, "b", 0) == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(os().unlinkat(at, status == 0 ? "b" : "a", AT_REMOVEDIR), 0);
  close(at);
  rmdir(directory);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
}

TEST(SystemCalls, calls_made_by_number_are_the_right_ones) {
  char directory[] = "/tmp/zero_os_test_XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const Fd at(os().openat(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  ASSERT_TRUE(at.valid());
  for (const char* name : {"a", "b"}) ASSERT_EQ(os().mkdirat(at.get(), name, 0700), 0);
  constexpr unsigned kNoReplace = 1;
  EXPECT_EQ(os().renameat2(at.get(), "a", at.get(), "b", kNoReplace), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(os().renameat2(at.get(), "a", at.get(), "c", kNoReplace), 0);
  for (const char* name : {"b", "c"}) EXPECT_EQ(os().unlinkat(at.get(), name, AT_REMOVEDIR), 0);
  rmdir(directory);

  uint32_t word = 3;
  EXPECT_EQ(os().futex(&word, FUTEX_WAIT_PRIVATE, 4, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(os().gettid(), os().getpid());
  const Fd self(os().pidfd_open(os().getpid(), 0));
  EXPECT_TRUE(self.valid() || errno == ENOSYS);
}

TEST(Fd, closes_once_however_it_is_moved) {
  const test::ReplacedCall replaced(&SystemCalls::close, [](int fd) {
    ++closes;
    return real_system_calls().close(fd);
  });
  closes = 0;
  {
    Fd first(os().memfd_create("os_test", MFD_CLOEXEC));
    const int number = first.get();
    Fd second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_EQ(second.get(), number);
    Fd third;
    third = std::move(second);
    EXPECT_EQ(closes, 0);
    third = Fd();
    EXPECT_EQ(closes, 1);
    EXPECT_EQ(fcntl(number, F_GETFD), -1);
  }
  EXPECT_EQ(closes, 1);
}

TEST(Clock, both_units_tell_the_same_monotonic_time) {
  const int64_t before = now_ns();
  const int64_t between = now_ms();
  const int64_t after = now_ns();
  EXPECT_LE(before / 1'000'000, between);
  EXPECT_LE(between, after / 1'000'000);
  EXPECT_LE(before, after);
}

}  // namespace
}  // namespace zero
