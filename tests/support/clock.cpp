// SPDX-License-Identifier: Apache-2.0
#include "support/clock.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>

#include "support/ranks.h"

namespace zero::test {
namespace {

constexpr size_t kMostThreads = 1024;
constexpr size_t kMostRanks = 16;
constexpr int64_t kMs = 1'000'000;

/// One thread that looks at the clock.
struct Looker {
  std::atomic<pid_t> thread, process;
  std::atomic<uint32_t> looks;
  std::atomic<int64_t> slept_ns;         // the sum of the timeouts that it asked for
  std::atomic<int64_t> slept_at_end_ns;  // slept_ns when the first rank ended
};

/// In memory that forked ranks share. It is never freed, because threads may outlive the test.
struct Dial {
  int64_t start_ns, runs_ns;  // of the wall clock
  std::atomic<int64_t> passed_ns;
  std::atomic<bool> ended;
  std::atomic<int64_t> told_ns[kMostRanks];  // how long each slept until it was told, plus one
  Looker lookers[kMostThreads];
};

Dial& dial() {
  static const SharedMemory memory(sizeof(Dial));
  return *memory.as<Dial>();
}

const SystemCalls& real() { return real_system_calls(); }

int64_t wall_ns() {
  timespec time{};
  real().clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000 * kMs + time.tv_nsec;
}

Looker& this_thread() {
  const pid_t thread = real().gettid();
  for (size_t at = static_cast<size_t>(thread);; at++) {
    Looker& one = dial().lookers[at % kMostThreads];
    pid_t owner = 0;
    if (one.thread.compare_exchange_strong(owner, thread)) one.process = getpid();
    if (owner == 0 || owner == thread) return one;
  }
}

int look(clockid_t clock, timespec* time) {
  if (clock != CLOCK_MONOTONIC) return real().clock_gettime(clock, time);
  this_thread().looks++;
  const Dial& now = dial();
  const int64_t ran_ns = std::min(wall_ns() - now.start_ns, now.runs_ns);
  const int64_t ns = now.start_ns + ran_ns + dial().passed_ns.fetch_add(kMs / 100);
  *time = {ns / (1'000 * kMs), ns % (1'000 * kMs)};
  return 0;
}

int sleep_on(uint32_t* word, int operation, uint32_t value, const timespec* timeout) {
  if ((operation & FUTEX_CMD_MASK) == FUTEX_WAIT && timeout != nullptr)
    this_thread().slept_ns += timeout->tv_sec * 1'000 * kMs + timeout->tv_nsec;
  return real().futex(word, operation, value, timeout);
}

int sleep_for(pollfd* fds, nfds_t count, int timeout_ms) {
  if (timeout_ms > 0) this_thread().slept_ns += timeout_ms * kMs;
  return real().poll(fds, count, timeout_ms);
}

/// Waits until the wanted number of others have looked twice. Returns false if nobody waits any
/// more, or on a failure.
bool await_looks(const std::function<int()>& waiting) {
  std::array<uint32_t, kMostThreads> before;
  const auto& lookers = dial().lookers;
  for (size_t i = 0; i < kMostThreads; i++) before[i] = lookers[i].looks;
  const pid_t thread = real().gettid(), process = getpid();
  std::set<pid_t> looked;
  for (const int64_t until = wall_ns() + 30'000 * kMs; wall_ns() < until; usleep(200)) {
    const int wanted = waiting();
    if (wanted <= 0) return false;
    for (size_t i = 0; i < kMostThreads; i++) {
      const Looker& one = lookers[i];
      if (one.looks - before[i] >= 2 && one.thread != thread)
        looked.insert(one.process == process ? one.thread : one.process);
    }
    if (static_cast<int>(looked.size()) >= wanted) return true;
  }
  ADD_FAILURE() << looked.size() << " others look at the clock, of " << waiting();
  return false;
}

void set_dial(int64_t runs_ms) {
  std::memset(static_cast<void*>(&dial()), 0, sizeof(Dial));
  dial().start_ns = wall_ns();
  dial().runs_ns = runs_ms * kMs;
}

void note_end() {
  if (dial().ended) return;
  for (Looker& one : dial().lookers) one.slept_at_end_ns = one.slept_ns.load();
  dial().ended = true;  // last: a thread that sees it reads the values above
}

}  // namespace

Clock::Clock(int64_t runs_ms)
    : time_(&SystemCalls::clock_gettime, (set_dial(runs_ms), look)),
      futex_(&SystemCalls::futex, sleep_on),
      poll_(&SystemCalls::poll, sleep_for) {
  on_rank_end = note_end;
}

void Clock::pass(int64_t ms, int waiting) {
  for (; ms > 0 && await_looks([=] { return waiting; }); ms -= kStepMs) jump(std::min(ms, kStepMs));
}

void Clock::reach(int64_t deadline_ms, int waiting) {
  pass(deadline_ms - 10, waiting);
  pass(20, waiting);
}

void Clock::run(const std::function<int()>& waiting, int64_t step_ms) {
  while (await_looks(waiting)) jump(step_ms);
}

std::jthread Clock::run_once(std::function<bool()> begun, std::function<int()> waiting) {
  return std::jthread([begun = std::move(begun), waiting = std::move(waiting)] {
    while (!begun()) usleep(1000);
    run(waiting);
  });
}

void Clock::jump(int64_t ms) { dial().passed_ns += ms * kMs; }

void Clock::note_told(int rank) {
  const Looker& mine = this_thread();
  const int64_t end_ns = dial().ended ? mine.slept_at_end_ns.load() : mine.slept_ns.load();
  int64_t none = 0;  // only the first time counts
  dial().told_ns[rank].compare_exchange_strong(none, mine.slept_ns - end_ns + 1);
}

int64_t Clock::slept_ms(int rank) { return dial().told_ns[rank] / kMs; }

}  // namespace zero::test
