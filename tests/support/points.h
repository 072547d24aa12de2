// SPDX-License-Identifier: Apache-2.0
// Numbered points of the library's protocols: note which ones a rank passes, or do something to it
// at one of them. For ranks that are processes; each sets its own trap.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/os.h"

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

inline void die() { kill(getpid(), SIGKILL); }
/// A forked child that lives on for two seconds, with all descriptors of its parent.
inline void leave_child_behind() {
  if (fork() != 0) return;
  usleep(2'000'000);
  _exit(0);
}

inline void stop() { kill(getpid(), SIGSTOP); }

}  // namespace zero::test
