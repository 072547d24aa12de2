// SPDX-License-Identifier: Apache-2.0
// The local comm when the operating system refuses: every system call of one rank fails in turn,
// once or from then on. All ranks return, with equal results where required, and nothing is left
// open.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/os.h"
#include "base/text.h"
#include "comm/create.h"
#include "comm/local/segment.h"
#include "support/ranks.h"
#include "support/scratch.h"
#include "support/trials.h"

namespace zero::test {
namespace {

using Seat = std::shared_ptr<Comm>;

std::atomic<int> calls_so_far;
int first_to_fail;
bool for_ever;
int error_number;
SystemCalls table;

bool fails() {
  const int n = ++calls_so_far;
  if (n != first_to_fail && !(for_ever && n > first_to_fail)) return false;
  errno = error_number;
  return true;
}

/// Replaces the table's member `Call` by one that fails in its turn.
template <auto Call, class Function = std::remove_reference_t<decltype(table.*Call)>>
struct StandIn;
template <auto Call, class Answer, class... Arguments>
struct StandIn<Call, Answer (*)(Arguments...)> {
  static Answer call(Arguments... arguments) {
    if (!fails()) return (real_system_calls().*Call)(arguments...);
    if constexpr (std::is_pointer_v<Answer>)
      return MAP_FAILED;
    else
      return -1;
  }
};

template <auto... Calls>
void stand_in() {
  ((table.*Calls = StandIn<Calls>::call), ...);
}

int refuse_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                  void* argument) {
  return fails() ? EAGAIN : real_system_calls().pthread_create(thread, attributes, main, argument);
}

void fail_from(int n, bool ever, int error) {
  calls_so_far = 0;
  first_to_fail = n;
  for_ever = ever;
  error_number = error;
  table = real_system_calls();
  using T = SystemCalls;
  stand_in<&T::openat, &T::fstat, &T::fallocate, &T::memfd_create, &T::ftruncate, &T::fcntl,
           &T::mmap, &T::madvise, &T::socket, &T::bind, &T::listen, &T::accept4, &T::connect,
           &T::sendmsg, &T::recvmsg, &T::getsockopt, &T::futex, &T::pidfd_open, &T::set_robust_list,
           &T::sched_getaffinity, &T::getrandom>();
  table.pthread_create = refuse_thread;
  replace_system_calls(&table);
}

CommOptions short_limits() {
  CommOptions options;
  options.timeout_ms = options.late_ms = 1'000;
  options.rendezvous_ms = 150;
  return options;
}

/// Joins, allocates and splits. Returns the results as lines.
std::string live(const std::string& name, int rank) {
  const Result<Seat> seat = create_local(name, rank, 2, short_limits());
  std::string said = text("join ", outcome(seat.failure()), "\n");
  if (!seat.ok()) return said;
  {
    Result<Call> call = (*seat)->begin(Operation::arena_alloc);
    if (!call.ok()) return text(said, "arena ", outcome(call.failure()), "\n");
    const auto arena = call->allocate(100'000, ZERO_MEMORY_PER_RANK);
    said += text("arena ", outcome(arena.failure()), "\n");
    if (arena.ok()) std::memset((*arena)->data(), 1, 100'000);
  }
  Result<Call> call = (*seat)->begin(Operation::split);
  if (!call.ok()) return text(said, "split ", outcome(call.failure()), "\n");
  return text(said, "split ", outcome(call->split(0, 0).failure()), "\n");
}

/// Counts "join ok", "arena ok" and "split ok".
size_t successes(const std::string& said) {
  size_t count = 0;
  for (size_t at = 0; (at = said.find(" ok\n", at)) != std::string::npos; ++at) ++count;
  return count;
}

class LocalCalls : public testing::TestWithParam<bool> {};

TEST_P(LocalCalls, whichever_fails_all_ranks_return_alike_and_leave_nothing_open) {
  const bool ever = GetParam();
  for (int victim = 0; victim < 2; ++victim) {
    int reached_end = 0;
    for (int n = 1; reached_end < 3 && n < 400; ++n) {
      const std::string name = unique_name();
      SharedMemory count(4096);
      count_trial();
      SCOPED_TRACE(text("call ", n, ever ? " and later ones" : "", " of rank ", victim));
      const std::vector<RankEnd> ends = run_ranks(
          RankKind::processes, 2,
          [&](int rank) {
            const int64_t before = entries_of("/proc/self/fd");
            if (rank == victim) fail_from(n, ever, n % 2 ? ENOMEM : EMFILE);
            const std::string said = live(name, rank);
            replace_system_calls(nullptr);
            EXPECT_EQ(entries_of("/proc/self/fd"), before);
            EXPECT_EQ(local::mapped_segments(), 0u);
            if (rank == victim) *count.as<int>() = calls_so_far;
            return said;
          },
          20'000);
      for (const RankEnd& end : ends)
        ASSERT_TRUE(end.returned && end.exit_status == 0)
            << (end.hung ? "hung" : "failed") << ", signal " << end.signal << "\n"
            << ends[0].result << ends[1].result;
      EXPECT_EQ(successes(ends[0].result), successes(ends[1].result))
          << ends[0].result << ends[1].result;
      if (*count.as<int>() < n) ++reached_end;
    }
    EXPECT_GE(reached_end, 3);
  }
}

/// Interrupts every call of `Call` in this process.
template <auto Call>
void interrupt() {
  fail_from(1, true, EINTR);
  const auto interrupted = table.*Call;
  table = real_system_calls();
  table.*Call = interrupted;
  replace_system_calls(&table);
}

// As with a timer that fires more often than the call completes.
TEST(InterruptedCalls, end_by_the_deadline_though_it_goes_on_for_ever) {
  using T = SystemCalls;
  const struct {
    const char* name;
    void (*interrupt)();
  } rows[] = {{"recvmsg", interrupt<&T::recvmsg>},     {"sendmsg", interrupt<&T::sendmsg>},
              {"getrandom", interrupt<&T::getrandom>}, {"accept4", interrupt<&T::accept4>},
              {"connect", interrupt<&T::connect>},     {"futex", interrupt<&T::futex>},
              {"openat", interrupt<&T::openat>},       {"fcntl", interrupt<&T::fcntl>},
              {"madvise", interrupt<&T::madvise>}};
  for (const auto& row : rows) {
    for (int victim = 0; victim < 2; ++victim) {
      SCOPED_TRACE(text(row.name, " of rank ", victim));
      const std::string name = unique_name();
      run_sound_ranks(
          RankKind::processes, 2,
          [&](int rank) {
            if (rank == victim) row.interrupt();
            (void)live(name, rank);
            replace_system_calls(nullptr);
            return std::string();
          },
          10'000);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(times, LocalCalls, testing::Bool(),
                         [](const auto& info) { return info.param ? "for_ever" : "once"; });

}  // namespace
}  // namespace zero::test
