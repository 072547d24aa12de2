// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "support/perturb.h"

namespace zero::test {
namespace {

using Body = std::function<std::string(int rank)>;
using Wall = std::chrono::steady_clock;

constexpr char kReturned = '+';  // the first byte that a process sends after its body has returned

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::abort();
}

std::vector<RankEnd> run_threads(int world, const Body& body, Wall::time_point until) {
  std::vector<RankEnd> ends(static_cast<size_t>(world));
  std::mutex mutex;
  std::condition_variable changed;
  int running = world;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      std::string result = body(rank);
      const std::lock_guard lock(mutex);
      RankEnd& end = ends[static_cast<size_t>(rank)];
      end.result = std::move(result);
      end.returned = true;
      --running;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, until, [&] { return running == 0; })) {
      for (int rank = 0; rank < world; ++rank)
        if (!ends[static_cast<size_t>(rank)].returned)
          std::fprintf(stderr, "rank %d (a thread) hangs (schedules by seed %llu)\n", rank,
                       static_cast<unsigned long long>(seed_in_force));
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;  // -1 after the other side has closed it
};

[[noreturn]] void be_child(int rank, const Body& body, int pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(3);
  std::string message(1, kReturned);
  message += body(rank);
  for (size_t sent = 0; sent < message.size();) {
    const ssize_t n = write(pipe, message.data() + sent, message.size() - sent);
    if (n < 0 && errno != EINTR) _exit(4);
    if (n > 0) sent += static_cast<size_t>(n);
  }
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

Child start_child(int rank, const Body& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid == 0) {
    close(ends[0]);
    be_child(rank, body, ends[1], parent);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

/// Reads what has arrived. Returns false once the child has closed its side.
bool read_some(int pipe, std::string& into) {
  char buffer[65536];
  const ssize_t n = read(pipe, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR;
  into.append(buffer, static_cast<size_t>(n));
  return n != 0;
}

void collect_messages(std::vector<Child>& children, std::vector<RankEnd>& ends,
                      Wall::time_point until) {
  for (;;) {
    std::vector<pollfd> polls;
    std::vector<size_t> ranks;
    for (size_t r = 0; r < children.size(); ++r) {
      if (children[r].pipe < 0) continue;
      polls.push_back({children[r].pipe, POLLIN, 0});
      ranks.push_back(r);
    }
    if (polls.empty()) return;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Wall::now());
    const int ready =
        poll(polls.data(), polls.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno != EINTR) fail("poll");
    if (ready == 0) {
      for (size_t r : ranks) {
        std::fprintf(stderr, "rank %zu (process %d) hangs and is killed\n", r, children[r].pid);
        ends[r].hung = true;
        kill(children[r].pid, SIGKILL);
        close(children[r].pipe);
        children[r].pipe = -1;
      }
      return;
    }
    for (size_t i = 0; ready > 0 && i < polls.size(); ++i) {
      if (polls[i].revents == 0 || read_some(polls[i].fd, ends[ranks[i]].result)) continue;
      close(polls[i].fd);
      children[ranks[i]].pipe = -1;
      on_rank_end();
    }
  }
}

std::vector<RankEnd> run_processes(int world, const Body& body, Wall::time_point until) {
  std::fflush(nullptr);
  std::vector<RankEnd> ends(static_cast<size_t>(world));
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) children.push_back(start_child(rank, body));
  collect_messages(children, ends, until);
  for (size_t r = 0; r < children.size(); ++r) {
    int status = 0;
    while (waitpid(children[r].pid, &status, 0) < 0 && errno == EINTR) {
    }
    RankEnd& end = ends[r];
    end.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end.returned = !end.result.empty() && end.result[0] == kReturned && end.signal == 0;
    if (!end.result.empty()) end.result.erase(0, 1);
  }
  return ends;
}

std::vector<RankEnd> run_launched(int world, const Body& body) {
  std::vector<RankEnd> ends;
  for (std::string& result : run_among_launched(body))
    ends.push_back({.returned = true, .result = std::move(result)});
  if (ends.size() != static_cast<size_t>(world)) fail("another number of ranks was launched");
  return ends;
}

}  // namespace

std::vector<RankEnd> run_ranks(RankKind kind, int world, const Body& body, int64_t deadline_ms) {
  perturb_points();
  const auto until = Wall::now() + std::chrono::milliseconds(deadline_ms);
  if (kind == RankKind::launched) return run_launched(world, body);
  return kind == RankKind::threads ? run_threads(world, body, until)
                                   : run_processes(world, body, until);
}

std::vector<std::string> run_sound_ranks(RankKind kind, int world, const Body& body,
                                         int64_t deadline_ms) {
  std::vector<std::string> results;
  for (RankEnd& end : run_ranks(kind, world, body, deadline_ms)) {
    EXPECT_TRUE(end.returned && end.exit_status == 0)
        << "rank " << results.size() << (end.hung ? " hung" : "") << ", exit status "
        << end.exit_status << ", signal " << end.signal;
    results.push_back(std::move(end.result));
  }
  return results;
}

Worker::Worker(pid_t (*fork)() noexcept) : pid_(fork()) {
  if (pid_ == 0)
    for (;;) pause();
}

Worker::~Worker() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string unique_name() {
  static std::atomic<int> count{0};
  return "test-" + std::to_string(getpid()) + "-" +
         std::to_string(Wall::now().time_since_epoch().count()) + "-" + std::to_string(count++);
}

SharedMemory::SharedMemory(size_t bytes) : bytes_(bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail("mmap");
  data_ = static_cast<std::byte*>(data);
}

SharedMemory::~SharedMemory() { munmap(data_, bytes_); }

}  // namespace zero::test
