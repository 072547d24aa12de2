// SPDX-License-Identifier: Apache-2.0
// A forked child has no descriptor, lock or memory of the library, whichever thread forked it.
#include "base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/os.h"
#include "device/memory.h"
#include "support/nightly.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/statuses.h"
#include "support/system_calls.h"
#include "support/trials.h"

// A forked child has ThreadSanitizer's records of threads that it does not have and cannot join.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }

namespace zero::test {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

int exit_code(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns the result of `body` in a forked child.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return exit_code(child);
}

Fd memory() {
  return Fd::open([] { return os().memfd_create("zero.test", MFD_CLOEXEC); });
}

std::atomic<int> slices{0};  // in which threads waited

int count_slice(pollfd* fds, nfds_t count, int timeout_ms) {
  slices++;
  return real_system_calls().poll(fds, count, timeout_ms);
}

/// Returns 1 if a descriptor of memory() is open, and else 0. A signal handler may call this.
int has_memory() {
  for (int fd = 0; fd < 256; ++fd) {
    char link[64] = "", path[32];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, link, sizeof link - 1) > 0 && std::strstr(link, "zero.test") != nullptr)
      return 1;
  }
  return 0;
}

/// Returns how many of some forked children have a descriptor that another thread makes or closes.
int leaks(int forks) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!over) {
        Fd one = memory();
        Fd other = std::move(one);
        other = memory();
      }
    });
  int found = 0;
  for (int i = 0; i < forks; ++i) {
    count_trial();
    found += in_child(has_memory);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  return found;
}

std::mutex handlers_mutex;

/// This and the next test must come first, because libzero registers its handler with the first
/// descriptor. That handler runs before the program's, which waits for a thread that is about to
/// create a descriptor.
TEST(Fork, a_handler_of_the_program_that_waits_for_a_call_of_the_library_ends) {
  EXPECT_EQ(in_child([] {
              alarm(60);
              pthread_atfork([] { handlers_mutex.lock(); }, [] { handlers_mutex.unlock(); },
                             [] { handlers_mutex.unlock(); });
              std::atomic<bool> over{false};
              std::thread makes([&] {
                while (!over) {
                  const std::lock_guard lock(handlers_mutex);
                  const Fd one = memory();
                }
              });
              for (int i = 0; i < 2; ++i)
                if (in_child([] { return 0; }) != 0) return 1;
              over = true;
              makes.join();
              return 0;
            }),
            0);
}

TEST(Fork, a_child_that_returns_from_a_fork_handler_keeps_none_either) {
  const SharedMemory shared(sizeof(std::atomic<int>));
  std::atomic<int>& found = *shared.as<std::atomic<int>>();
  EXPECT_EQ(in_child([&] {
              static std::atomic<bool> forks{true};
              const auto forks_once = [] {
                if (forks.exchange(false) && fork() == 0) alarm(60);
              };
              pthread_atfork(forks_once, nullptr, nullptr);
              const Fd first = memory();
              if (in_child([] { return 0; }) != 0) return 1;  // two processes return from here
              found += leaks(60);
              while (wait(nullptr) > 0) {
              }
              return 0;
            }),
            0);
  EXPECT_EQ(found, 0);
}

TEST(Fork, a_child_has_the_callers_descriptors_and_none_of_the_librarys) {
  const int callers = memfd_create("caller", MFD_CLOEXEC);
  const Fd own = memory();
  Fd first = memory();
  const int was_there = first.get();
  const Fd moved = std::move(first);
  const Fd adopted(dup(callers));
  EXPECT_EQ(in_child([&] {
              for (const int fd : {own.get(), was_there, moved.get(), adopted.get()})
                if (is_open(fd)) return 1;
              return is_open(callers) ? 0 : 2;
            }),
            0);
  EXPECT_TRUE(is_open(own.get()) && is_open(moved.get()) && is_open(adopted.get()));
  close(callers);
}

TEST(Fork, a_child_of_a_child_has_none_either) {
  const Fd own = memory();
  EXPECT_EQ(in_child([&] {
              const Fd childs = memory();  // may have the same number
              const int grandchild =
                  in_child([&] { return is_open(own.get()) || is_open(childs.get()) ? 1 : 0; });
              return is_open(childs.get()) ? grandchild : 2;
            }),
            0);
}

TEST(Fork, an_object_that_a_child_has_inherited_closes_no_descriptor_of_its_own) {
  Fd inherited = memory();
  EXPECT_EQ(in_child([&] {
              if (open("/dev/null", O_RDONLY) != inherited.get()) return 1;
              const int fd = inherited.get();
              inherited.reset();
              return is_open(fd) ? 0 : 2;
            }),
            0);
}

// ---- Locks.

/// Returns true if another process could lock the file.
bool is_free(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return locked;
}

pid_t fork_without_handlers() noexcept {
  return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

TEST(Fork, a_lock_ends_with_its_holder_not_with_children_and_not_before) {
  const Scratch scratch;
  const std::string path = scratch / "locked";
  write_file(path, "");
  for (pid_t (*const way)() noexcept : {::fork, fork_without_handlers}) {
    Fd fd = Fd::open([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC); });
    ASSERT_EQ(fd.lock(), 0);
    const Worker worker(way);
    usleep(10'000);  // it closes what it must
    EXPECT_FALSE(is_free(path));
    fd.reset();
    EXPECT_TRUE(is_free(path));
  }
}

// ---- While other threads create and close descriptors.

TEST(Fork, a_child_has_none_that_another_thread_was_just_making_or_closing) {
  EXPECT_EQ(leaks(nightly_run() ? 20'000 : 60), 0);
}

TEST(Fork, a_change_that_hangs_holds_up_one_fork_and_no_child) {
  const ReplacedCall counts(&SystemCalls::poll, count_slice);
  std::atomic<bool> hangs{false}, over{false};
  std::thread changes([&] {
    const DescriptorChange change;
    hangs = true;
    while (!over) usleep(1'000);
  });
  while (!hangs) usleep(100);
  EXPECT_EQ(in_child([] { return is_open(memory().get()) ? 0 : 1; }), 0);
  const int first = slices;
  EXPECT_GT(first, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(in_child([] { return 0; }), 0);
  EXPECT_EQ(slices, first);
  over = true;
  changes.join();
  // It has ended, so that the next one is waited for.
  over = false, hangs = false;
  changes = std::thread([&] {
    const DescriptorChange change;
    hangs = true;
    while (slices == first) usleep(1'000);
  });
  while (!hangs) usleep(100);
  EXPECT_EQ(in_child([] { return 0; }), 0);
  EXPECT_GT(slices, first);
  changes.join();
}

TEST(Fork, a_signal_handler_that_forks_waits_for_the_changes_of_other_threads) {
  static std::atomic<int> handled;
  handled = -1;
  struct sigaction before, forks = {};
  forks.sa_handler = [](int) { handled = in_child(has_memory); };
  sigaction(SIGUSR1, &forks, &before);
  const ReplacedCall counts(&SystemCalls::poll, count_slice);
  std::atomic<bool> made{false}, ends{false};
  std::thread makes([&] {
    const DescriptorChange change;
    const int fd = memfd_create("zero.test", MFD_CLOEXEC);
    made = true;
    while (!ends) usleep(100);
    note_descriptor(fd);
    EXPECT_TRUE(forget_descriptor(fd));
    close(fd);
  });
  while (!made) usleep(100);
  slices = 0;
  std::thread forker([] { EXPECT_EQ(in_child(has_memory), 0); });
  while (slices == 0) usleep(100);
  std::thread waiter([] { const Fd one = memory(); });
  usleep(20'000);  // it waits for the fork
  pthread_kill(waiter.native_handle(), SIGUSR1);
  usleep(20'000);  // the handler waits, or has forked
  ends = true;
  makes.join(), forker.join(), waiter.join();
  EXPECT_EQ(handled, 0);
  sigaction(SIGUSR1, &before, nullptr);
}

// ---- Memory.

TEST(Fork, a_child_sees_arenas_and_no_state) {
  constexpr size_t kBytes = 1 << 16;
  const HostMemory state = made(HostMemory::allocate(kBytes, "state"));
  const HostMemory copies = made(HostMemory::reserve(kBytes, "copies"));
  const HostMemory arena = made(HostMemory::allocate(kBytes, "an arena", Children::see_it));
  const auto is_there = [](const HostMemory& memory) {
    return msync(memory.data(), kBytes, MS_ASYNC) == 0;
  };
  EXPECT_EQ(in_child([&] {
              if (is_there(state) || is_there(copies)) return 1;
              return is_there(arena) && arena.data()[kBytes - 1] == std::byte{} ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace zero::test
