// SPDX-License-Identifier: Apache-2.0
#include "support/points.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>
#include <type_traits>

namespace zero::test {
namespace {

std::mutex mutex;
std::vector<Point> passed;  // guarded by mutex
Point trap;
void (*at_trap)() = nullptr;

void reached(const char* name) {
  void (*due)() = nullptr;
  {
    const std::lock_guard lock(mutex);
    int occurrence = 1;
    for (const Point& earlier : passed) occurrence += earlier.name == name;
    passed.push_back({name, occurrence});
    if (trap.name == name && trap.occurrence == occurrence) due = at_trap;
  }
  if (due != nullptr) due();
}

/// Makes a member of the table a point.
template <auto Call, class Function = std::remove_cvref_t<decltype(real_system_calls().*Call)>>
struct CallPoint;
template <auto Call, class Answer, class... Arguments>
struct CallPoint<Call, Answer (*)(Arguments...)> {
  static inline const char* name = "";
  static Answer call(Arguments... arguments) {
    reached(name);
    return (real_system_calls().*Call)(arguments...);
  }
  static void watch(const char* its_name) {
    name = its_name;
    replace_call(Call, call);
  }
};

void watch_calls() {
  CallPoint<&SystemCalls::connect>::watch("connect");
  CallPoint<&SystemCalls::sendmsg>::watch("sendmsg");
  CallPoint<&SystemCalls::pwrite>::watch("pwrite");
  CallPoint<&SystemCalls::fsync>::watch("fsync");
  CallPoint<&SystemCalls::renameat2>::watch("renameat2");
}

/// Shared by the ranks, of which one is struck, and the process that lets time pass.
struct Board {
  std::atomic<int> through;  // ranks that are done
  std::atomic<int64_t> struck_ms;
  std::atomic<bool> struck;    // a rank was struck
  std::atomic<pid_t> stopped;  // its process; 0: it died, or none stopped
  std::atomic<bool> over;      // the others are done
};
Board* board = nullptr;
int64_t last_struck_ms = 0;

/// A job that is stopped while one of its ranks is late.
struct Job {
  static constexpr int kMostRanks = 16;
  std::atomic<pid_t> processes[kMostRanks];
  std::atomic<int> through;  // ranks that are done
  std::atomic<bool> one_is_late, goes_on;
};
Job* job = nullptr;

void stop_job(int world) {
  constexpr useconds_t kLooksUs = 60'000;  // until all waiting ranks have looked at the clock
  while (!job->one_is_late && job->through < world) usleep(1'000);
  usleep(kLooksUs);
  for (int rank = 0; rank < world; ++rank) kill(job->processes[rank], SIGSTOP);
  Clock::jump(30'000);
  for (int rank = 0; rank < world; ++rank) kill(job->processes[rank], SIGCONT);
  usleep(kLooksUs);
  job->goes_on = true;
}

void await_others() {
  for (int ms = 0; ms < 60'000 && !board->over; ++ms) usleep(1'000);
}

void note_strike() {
  board->struck_ms = now_ms();
  board->struck = true;
}

/// Runs in a process next to the ranks.
void let_time_pass(int world) {
  const auto others = [=] { return world - 1 - board->through; };
  while (!board->struck && others() > 0) usleep(500);
  Clock::run(others);
  board->over = true;
  // The victim may reach its point only now, and a killed rank never ends.
  const auto died = [] { return board->struck && board->stopped == 0; };
  for (; board->through < world && !died(); usleep(5'000))
    if (board->stopped != 0) kill(board->stopped, SIGCONT);
}

}  // namespace

void watch_points(const Point& point, void (*action)(), Points points) {
  trap = point;
  at_trap = action;
  passed.clear();
  if (points == Points::calls) return watch_calls();
  replace_call(&SystemCalls::reached, reached);
}

void stop_watching_points() { replace_call(&SystemCalls::reached, real_system_calls().reached); }

std::vector<Point> passed_points() {
  const std::lock_guard lock(mutex);
  return passed;
}

PointsOfRanks points_of_ranks(int world, const std::function<std::string(int rank)>& body) {
  constexpr size_t kListBytes = 65536;
  const SharedMemory lists(static_cast<size_t>(world) * kListBytes);
  const auto list_of = [&](int rank) {
    return lists.as<char>() + static_cast<size_t>(rank) * kListBytes;
  };
  run_sound_ranks(RankKind::processes, world, [&](int rank) {
    const std::string said = body(rank);
    std::string list;
    for (const Point& point : passed_points())
      list += text(point.name, " ", point.occurrence, "\n");
    std::strcpy(list_of(rank), list.c_str());
    return said;
  });
  PointsOfRanks points(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    std::istringstream list(list_of(rank));
    for (Point point; list >> point.name >> point.occurrence;)
      points[static_cast<size_t>(rank)].push_back(point);
  }
  return points;
}

void die() {
  if (board != nullptr) note_strike();
  kill(getpid(), SIGKILL);
}

void stop() {
  board->stopped = getpid();
  note_strike();
  kill(getpid(), SIGSTOP);
  await_others();  // the thread that stops its process may run a little longer
}

int64_t struck_ms() { return last_struck_ms; }

void leave_child_behind() {
  if (fork() != 0) return;
  await_others();
  _exit(0);
}

void die_with_workers() {
  leave_child_behind();
  std::thread(leave_child_behind).join();
  if (fork() == 0) {
    execlp("sleep", "sleep", "2", nullptr);
    _exit(1);
  }
  die();
}

void be_late() {
  job->one_is_late = true;
  while (!job->goes_on) usleep(1'000);
}

std::vector<std::string> run_stopped_job(int world,
                                         const std::function<std::string(int rank)>& body) {
  const Clock clock;
  const SharedMemory memory(sizeof(Job));
  job = memory.as<Job>();
  std::vector<std::string> said = run_sound_ranks(RankKind::processes, world + 1, [&](int rank) {
    if (rank == world) return stop_job(world), std::string();
    job->processes[rank] = getpid();
    std::string end = body(rank);
    job->through++;
    while (!job->goes_on) usleep(1'000);
    return end;
  });
  said.pop_back();
  return said;
}

std::vector<RankEnd> run_struck_ranks(int world, const std::function<std::string(int rank)>& body) {
  const Clock clock;
  const SharedMemory memory(sizeof(Board));
  board = memory.as<Board>();
  std::vector<RankEnd> ends = run_ranks(RankKind::processes, world + 1, [&](int rank) {
    if (rank == world) return let_time_pass(world), std::string();
    std::string said = body(rank);
    Clock::note_told(rank);
    board->through++;
    return said;
  });
  last_struck_ms = board->struck_ms;
  EXPECT_TRUE(ends.back().returned && ends.back().exit_status == 0) << "time did not pass";
  ends.pop_back();
  return ends;
}

}  // namespace zero::test
