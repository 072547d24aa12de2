// SPDX-License-Identifier: Apache-2.0
// The basis of the local comm: sealed memory without a name, and words that show which process is
// alive.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "comm/create.h"
#include "comm/local/arena.h"
#include "comm/local/life.h"
#include "comm/local/segment.h"
#include "comm/process.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/statuses.h"
#include "support/system_calls.h"

namespace zero::local {
namespace {

using test::expect_failure;
using test::expect_ok;
using test::made;
using test::SharedMemory;

constexpr size_t kBytes = 64 * 1024;

Fd segment(size_t bytes = kBytes) { return made(create_segment("zero.test", bytes)); }

std::shared_ptr<Mapping> map(const Fd& fd, size_t bytes = kBytes, Access access = Access::shown) {
  return made(map_segment(fd.get(), bytes, access));
}

/// A forked process that runs `body`, and then sleeps until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : flag_(4096) {
    pid_ = fork();
    if (pid_ == 0) {
      body();
      *flag_.as<volatile int>() = 1;
      for (;;) pause();
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void wait_until_ready() const {
    while (*flag_.as<volatile int>() == 0) usleep(200);
  }

 private:
  SharedMemory flag_;
  pid_t pid_;
};

// ---- Segments.

TEST(Segment, its_size_cannot_change) {
  const Fd fd = segment();
  EXPECT_EQ(ftruncate(fd.get(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(fd.get(), 2 * kBytes), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_TRUE(check_segment(fd.get(), kBytes).ok());
}

TEST(Segment, the_limit_of_file_sizes_is_an_error_and_no_signal) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{kBytes - 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = create_segment("zero.test", kBytes).failure();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_failure(status, ZERO_ERR_MEMORY, "(EFBIG): the file size limit (ulimit -f)");
}

TEST(Segment, a_descriptor_of_another_size_is_refused) {
  expect_failure(check_segment(segment().get(), 2 * kBytes), ZERO_ERR_COMM,
                 "65536 bytes instead of 131072");
}

TEST(Segment, a_descriptor_that_is_no_sealed_memory_is_refused) {
  const Fd open(memfd_create("zero.test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open.get(), kBytes), 0);
  EXPECT_EQ(check_segment(open.get(), kBytes).code(), ZERO_ERR_COMM);
  ASSERT_EQ(fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(check_segment(open.get(), kBytes).code(), ZERO_ERR_COMM);
  ASSERT_EQ(fcntl(open.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_TRUE(check_segment(open.get(), kBytes).ok());

  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(check_segment(null.get(), 0).code(), ZERO_ERR_COMM);
  EXPECT_EQ(check_segment(-1, kBytes).code(), ZERO_ERR_COMM);
}

TEST(Segment, a_process_maps_it_once) {
  const Fd fd = segment();
  const Fd other(dup(fd.get()));
  const size_t before = mapped_segments();
  {
    const auto first = map(fd);
    const auto second = map(other);
    EXPECT_EQ(first.get(), second.get());
    EXPECT_EQ(mapped_segments(), before + 1);
    EXPECT_NE(map(segment()).get(), first.get());
  }
  EXPECT_EQ(mapped_segments(), before);
  EXPECT_EQ(map(fd)->data()[0], std::byte{0});
}

TEST(Segment, threads_that_map_and_unmap_share_one_mapping) {
  const Fd fd = segment();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const auto first = map(fd);
        EXPECT_EQ(map(fd).get(), first.get());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mapped_segments(), 0u);
}

TEST(Segment, a_large_one_starts_at_a_huge_page) {
  const size_t bytes = 3 * kHugePage + static_cast<size_t>(getpagesize());
  const auto mapping = map(segment(bytes), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->data()) % kHugePage, 0u);
}

TEST(Segment, what_is_reserved_has_memory_and_the_rest_has_none) {
  const size_t bytes = 1024 * 1024;
  const Fd fd = segment(bytes);
  const auto mapping = map(fd, bytes);
  struct stat info;
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  ASSERT_TRUE(reserve(fd.get(), *mapping, 100'000, 200'000).ok());
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  const int64_t page = getpagesize();
  const int64_t pages = (300'000 + page - 1) / page - 100'000 / page;
  EXPECT_EQ(info.st_blocks * 512, pages * page);
}

TEST(Segment, memory_is_reserved_on_kernels_that_cannot_populate) {
  const Fd fd = segment();
  const auto mapping = map(fd);
  const test::ReplacedCall cannot_populate(&SystemCalls::madvise, [](void*, size_t, int) {
    errno = EINVAL;
    return -1;
  });
  expect_ok(reserve(fd.get(), *mapping, 0, kBytes));
  struct stat info;
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, static_cast<int64_t>(kBytes));
  const test::ReplacedCall is_full(&SystemCalls::fallocate, [](int, int, int64_t, int64_t) {
    errno = ENOSPC;
    return -1;
  });
  expect_failure(reserve(fd.get(), *mapping, 0, kBytes), ZERO_ERR_MEMORY, "65536 bytes");
}

// As on ARM64 with large pages: the segment may not grow to a whole page.
TEST(Segment, one_that_is_smaller_than_a_page_is_reserved) {
  const test::ReplacedCall large_pages(&SystemCalls::getpagesize, [] { return 64 * 1024; });
  const test::ReplacedCall cannot_populate(&SystemCalls::madvise, [](void*, size_t, int) {
    errno = EINVAL;
    return -1;
  });
  const Fd fd = segment(kLifePageBytes);
  expect_ok(reserve(fd.get(), *map(fd, kLifePageBytes), 0, kLifePageBytes));
  struct stat info;
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, int64_t{kLifePageBytes});
}

TEST(Segment, a_hidden_one_is_not_in_children) {
  const Fd fd = segment();
  const auto shown = map(fd);
  const auto hidden = map(fd, kBytes, Access::hidden);
  ASSERT_NE(shown.get(), hidden.get());
  test::run_sound_ranks(test::RankKind::processes, 1, [&](int) -> std::string {
    EXPECT_EQ(msync(shown->data(), kBytes, MS_ASYNC), 0);
    EXPECT_EQ(msync(hidden->data(), kBytes, MS_ASYNC), -1);
    EXPECT_EQ(errno, ENOMEM);
    return "";
  });
}

TEST(ArenaLayout, sizes_that_overflow_are_refused) {
  EXPECT_EQ(ArenaLayout::of(1, ZERO_MEMORY_PER_RANK, 3)->total(), 3 * kHugePage);
  EXPECT_EQ(ArenaLayout::of(kHugePage + 1, ZERO_MEMORY_SHARED, 3)->total(), 2 * kHugePage);
  EXPECT_EQ(ArenaLayout::of(SIZE_MAX, ZERO_MEMORY_SHARED, 2).failure().code(), ZERO_ERR_MEMORY);
  EXPECT_EQ(ArenaLayout::of(SIZE_MAX / 2, ZERO_MEMORY_PER_RANK, 1024).failure().code(),
            ZERO_ERR_MEMORY);
  EXPECT_EQ(ArenaLayout::of(SIZE_MAX / 2 + 1, ZERO_MEMORY_SHARED, 1).failure().code(),
            ZERO_ERR_MEMORY);
}

// ---- Life.

/// This process's page and that of a child, which passes it through the descriptor table that it
/// shares.
struct Watched {
  explicit Watched(const std::function<void()>& body = [] {})
      : shared(4096), child([this, body] {
          static Result<Life> life = Life::begin();
          *shared.as<int>() = life->page();
          body();
        }) {
    child.wait_until_ready();
    const std::string path = text("/proc/", child.pid(), "/fd/", *shared.as<int>());
    page = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    peer = made(Peer::meet(page.get(), Fd(), child.pid()));
  }

  SharedMemory shared;
  Child child;
  Fd page;
  std::shared_ptr<Peer> peer;
};

bool is_seen_dead(const Peer& peer) {
  for (int ms = 0; ms < 30'000 && !peer.dead(); ++ms) usleep(1'000);
  return peer.dead();
}

/// Returns how much later this is seen than the end of an empty process that is killed at the same
/// time. A busy machine delays both.
int64_t ms_until_seen_dead(const Watched& watched) {
  const pid_t control = fork();
  if (control == 0)
    for (;;) pause();
  kill(watched.child.pid(), SIGKILL);
  kill(control, SIGKILL);
  waitpid(control, nullptr, 0);
  const int64_t start = now_ms();
  EXPECT_TRUE(is_seen_dead(*watched.peer));
  return now_ms() - start;
}

TEST(Life, a_killed_process_is_seen_dead_within_100_ms_however_much_memory_it_has) {
  // In nightly runs it has so much that freeing it takes longer than that.
  for (const size_t bytes : {size_t{4096}, size_t{test::nightly_run() ? 4096u : 512u} << 20}) {
    int64_t least_ms = INT64_MAX;  // the least of some tries, because the observer may also be late
    for (int i = 0; i < 10 && least_ms > 100; ++i) {
      const Watched watched([bytes] {
        void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) _exit(1);
      });
      EXPECT_FALSE(watched.peer->dead());
      least_ms = std::min(least_ms, ms_until_seen_dead(watched));
    }
    EXPECT_LE(least_ms, 100);
  }
}

TEST(Life, a_process_that_exits_or_becomes_another_program_is_seen_dead) {
  for (const bool exec : {false, true}) {
    SharedMemory go(4096);
    volatile int* const flag = go.as<volatile int>();
    *flag = 0;
    // The child's body ends in a thread, so that the constructor first sees it ready.
    const Watched watched([flag, exec] {
      std::thread([flag, exec] {
        while (*flag == 0) usleep(200);
        if (exec) execl("/bin/sleep", "sleep", "1000", nullptr);
        _exit(0);
      }).detach();
    });
    EXPECT_FALSE(watched.peer->dead());
    *flag = 1;
    EXPECT_TRUE(is_seen_dead(*watched.peer)) << (exec ? "exec" : "exit");
  }
}

TEST(Life, a_stopped_process_is_alive_and_called_stopped) {
  const Watched watched;
  const auto state = [&] { return std::string(process_state(watched.child.pid())); };
  for (int ms = 0; ms < 30'000 && state() == "running"; ++ms) usleep(1'000);
  EXPECT_EQ(state(), "sleeping");
  kill(watched.child.pid(), SIGSTOP);
  int status = 0;
  waitpid(watched.child.pid(), &status, WUNTRACED);
  EXPECT_FALSE(watched.peer->ask());
  EXPECT_EQ(state(), "stopped");
}

TEST(Life, a_process_that_a_signal_cannot_interrupt_is_called_so) {
  // While a child of vfork has neither ended nor started another program, its parent is
  // uninterruptible.
  const pid_t child = fork();
  if (child == 0) {
    if (vfork() != 0) _exit(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const auto state = [&] { return std::string(process_state(child)); };
  for (int ms = 0; ms < 10'000 && state() != "in an uninterruptible system call"; ++ms)
    usleep(1'000);
  EXPECT_EQ(state(), "in an uninterruptible system call");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(Life, who_was_killed_died_and_who_left_by_itself_ended) {
  struct utsname kernel;
  ASSERT_EQ(uname(&kernel), 0);
  const int version = atoi(kernel.release) * 100 + atoi(strchr(kernel.release, '.') + 1);
  const struct {
    void (*leave)();
    const char* said;
  } ways[] = {{[] { _exit(0); },
               "ended before the others: a rank that runs out of data calls "
               "zero_join, not exit"},
              {[] { _exit(3); }, "ended with exit code 3: see its own output for the reason"},
              {[] { raise(SIGKILL); }, "died"}};
  for (const auto& way : ways) {
    const pid_t child = fork();
    if (child == 0) {
      raise(SIGSTOP);
      way.leave();
    }
    ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
    const Fd pidfd(os().pidfd_open(child, 0));
    kill(child, SIGCONT);
    ASSERT_TRUE(pidfd_ended(pidfd.get(), 10'000));
    EXPECT_EQ(how_it_left(child, pidfd.get()), way.said);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(how_it_left(child, pidfd.get()), version >= 615 ? way.said : "died");
    EXPECT_EQ(how_it_left(child, -1), "died");
  }
}

TEST(Life, the_page_can_be_written_by_nobody_else) {
  const Watched watched;
  const std::string path = text("/proc/", watched.child.pid(), "/fd/", *watched.shared.as<int>());
  const Fd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  EXPECT_EQ(mmap(nullptr, kLifePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(pwrite(fd.get(), "x", 1, 0), -1);
}

TEST(Life, the_second_witness_is_heard_where_the_first_is_silent) {
  Child child([] {});
  child.wait_until_ready();
  // A page on which nobody has registered anything keeps its word.
  const Fd page = segment(kLifePageBytes);
  reinterpret_cast<LifePage*>(map(page, kLifePageBytes)->data())->word = 4711;
  Fd pidfd(os().pidfd_open(child.pid(), 0));
  ASSERT_TRUE(pidfd.valid());
  const std::shared_ptr<Peer> peer = *Peer::meet(page.get(), std::move(pidfd), child.pid());
  EXPECT_FALSE(peer->ask());
  kill(child.pid(), SIGKILL);
  for (int ms = 0; ms < 30'000 && !peer->ask(); ++ms) usleep(1'000);
  EXPECT_TRUE(peer->dead());
}

TEST(Life, where_the_system_has_no_robust_futexes_the_pidfd_tells_and_without_either_none_begins) {
  const test::ReplacedCall no_list(&SystemCalls::set_robust_list, [](void*, size_t) {
    errno = ENOSYS;
    return -1;
  });
  const Watched watched;
  const std::shared_ptr<Mapping> page = map(watched.page, kLifePageBytes, Access::read_only);
  const Peer peer(page, Fd(os().pidfd_open(watched.child.pid(), 0)), watched.child.pid());
  EXPECT_FALSE(peer.ask());
  kill(watched.child.pid(), SIGKILL);
  for (int ms = 0; ms < 30'000 && !peer.ask(); ++ms) usleep(1'000);
  EXPECT_TRUE(peer.dead());
  EXPECT_FALSE(watched.peer->dead());

  const test::ReplacedCall no_pidfd(&SystemCalls::pidfd_open, [](pid_t, unsigned) {
    errno = ENOSYS;
    return -1;
  });
  expect_failure(Life::begin(), ZERO_ERR_SYSTEM, "robust futex: Function not implemented");
}

TEST(Life, its_thread_is_there_while_a_seat_is) {
  const auto threads = [] { return test::entries_of("/proc/self/task"); };
  const auto before = threads();
  {
    Result<Life> first = Life::begin();
    ASSERT_TRUE(first.ok());
    Result<Life> second = Life::begin();
    EXPECT_EQ(threads(), before + 1);
    const std::shared_ptr<Peer> self = *Peer::meet(first->page(), Fd(), getpid());
    EXPECT_FALSE(self->ask());
    Life moved = std::move(first).value();
    { const Life gone = std::move(second).value(); }
    EXPECT_EQ(threads(), before + 1);
  }
  // A joined thread is listed until the kernel has unlinked it.
  for (int i = 0; i < 100 && threads() != before; ++i) usleep(10'000);
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(mapped_segments(), 0u);
}

TEST(Life, a_forked_child_has_no_share_in_it) {
  const Result<Life> life = Life::begin();
  ASSERT_TRUE(life.ok());
  test::run_sound_ranks(test::RankKind::processes, 1, [](int) -> std::string {
    EXPECT_EQ(Life::begin().failure().code(), ZERO_ERR_FORKED);
    return "";
  });
}

// ---- Arenas.

TEST(LocalArena, nothing_beyond_its_end_its_ranks_and_its_number_is_resolved) {
  test::run_sound_ranks(test::RankKind::threads, 2, [&](int rank) -> std::string {
    const std::shared_ptr<Comm> comm = made(create_local("local-test-arena", rank, 2, {}));
    Result<Call> call = comm->begin(Operation::arena_alloc);
    const std::shared_ptr<Arena> arena = made(call->allocate(1000, ZERO_MEMORY_PER_RANK));
    const Location place{arena->number(), 0, 8};
    expect_ok(comm->resolve(1, place, 992).failure());
    expect_failure(comm->resolve(0, place, 993), ZERO_ERR_ARGUMENT, "");
    expect_failure(comm->resolve(0, {arena->number(), 0, UINT64_MAX}, 1), ZERO_ERR_ARGUMENT, "");
    expect_failure(comm->resolve(2, place, 1), ZERO_ERR_ARGUMENT, "");
    expect_failure(comm->resolve(0, {arena->number() + 1, 0, 0}, 1), ZERO_ERR_STATE, "");
    expect_ok(call->vote("looked", {}));
    return "";
  });
  EXPECT_EQ(mapped_segments(), 0u);
}

}  // namespace
}  // namespace zero::local
