// SPDX-License-Identifier: Apache-2.0
// Numbered points of the library's protocols: note which ones a rank passes, or do something to it
// at one of them. For ranks that are processes; each sets its own trap.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "base/os.h"
#include "support/ranks.h"

namespace zero::test {

struct Point {
  std::string name;
  int occurrence = 1;  // the n-th time that it is passed
};

namespace points_detail {
inline SystemCalls calls;
inline std::mutex mutex;
inline std::vector<std::string> passed;
inline Point trap;
inline void (*action)() = nullptr;

inline void reached(const char* point) {
  void (*due)() = nullptr;
  {
    const std::lock_guard lock(mutex);
    passed.emplace_back(point);
    if (action != nullptr && trap.name == point && --trap.occurrence == 0) due = action;
  }
  if (due != nullptr) due();
}
}  // namespace points_detail

/// From now on this process notes its points, and does `action` at `point`.
inline void watch_points(const Point& point = {}, void (*action)() = nullptr) {
  using namespace points_detail;
  trap = point;
  points_detail::action = action;
  passed.clear();
  calls = real_system_calls();
  calls.reached = points_detail::reached;
  replace_system_calls(&calls);
}

/// The points passed since, with how often each had come before: "exchange.arrived 2".
inline std::vector<Point> passed_points() {
  const std::lock_guard lock(points_detail::mutex);
  std::vector<Point> points;
  for (const std::string& name : points_detail::passed) {
    int occurrence = 1;
    for (const Point& earlier : points) occurrence += earlier.name == name;
    points.push_back({name, occurrence});
  }
  return points;
}

inline void stop_watching_points() { replace_system_calls(nullptr); }

/// The points that each of `world` processes passes in `body` from its watch_points() on; `body`
/// must succeed.
inline std::vector<std::vector<Point>> points_of_ranks(
    int world, const std::function<std::string(int rank)>& body) {
  constexpr size_t kListBytes = 65536;
  SharedMemory lists(static_cast<size_t>(world) * kListBytes);
  const auto list_of = [&](int rank) {
    return lists.as<char>() + static_cast<size_t>(rank) * kListBytes;
  };
  run_sound_ranks(RankKind::processes, world, [&](int rank) {
    const std::string said = body(rank);
    std::string list;
    for (const Point& point : passed_points())
      list += point.name + " " + std::to_string(point.occurrence) + "\n";
    std::strcpy(list_of(rank), list.c_str());
    return said;
  });
  std::vector<std::vector<Point>> points;
  for (int rank = 0; rank < world; ++rank) {
    std::istringstream list(list_of(rank));
    points.emplace_back();
    Point point;
    while (list >> point.name >> point.occurrence) points.back().push_back(point);
  }
  return points;
}

inline void die() { kill(getpid(), SIGKILL); }

/// When a victim died and its peers' calls returned; `toll` lies in memory that ranks share.
struct Toll {
  volatile int64_t dead_ns;
  volatile int64_t back_ns[8];
};
inline Toll* toll = nullptr;

inline void die_noticed() {
  toll->dead_ns = now_ns();
  die();
}

/// A forked child that lives on for two seconds, with all descriptors of its parent.
inline void leave_child_behind() {
  if (fork() != 0) return;
  usleep(2'000'000);
  _exit(0);
}

inline void stop() { kill(getpid(), SIGSTOP); }

}  // namespace zero::test
