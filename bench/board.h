// SPDX-License-Identifier: Apache-2.0
// Memory that the forked ranks of a benchmark share: a spinning barrier, and the times of every
// step.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

namespace bench {

inline constexpr int kMaxRanks = 64;
inline constexpr int kMaxSeries = 32;
inline constexpr int kMaxRounds = 1000;

inline double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Barrier {
 public:
  void wait(int parties) {
    const uint32_t turn = turn_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(parties)) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; spins++) {
      if (spins < 2000) {
        pause_briefly();
      } else {
        sched_yield();
      }
    }
  }

 private:
  alignas(128) std::atomic<uint32_t> arrived_{0};
  alignas(128) std::atomic<uint32_t> turn_{0};
};

/// The times of one subject. Each round has the time of the slowest rank.
struct Series {
  double seconds[kMaxRounds];
  int rounds;
  double counted_bytes;  // counted by the library, over all ranks, per step; 0 if it does not count
};

struct Board {
  Barrier barrier;
  Barrier comm_barrier;  // of BenchComm
  double seconds[kMaxRanks];
  double counted[kMaxRanks];
  Series series[kMaxSeries];
};

template <class T>
T* share(size_t count = 1) {
  void* memory =
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  return new (memory) T[count];
}

/// The board as one rank uses it.
struct Rank {
  Board* board;
  int rank;
  int world;
  int threads;  // that the library and the streaming kernels may use

  void meet() const { board->barrier.wait(world); }

  /// Runs `work` on all ranks at once. With `keep`, stores the time of the slowest rank in series
  /// `number`.
  void time(int number, bool keep, const std::function<void()>& work) const {
    meet();
    const double start = now();
    work();
    board->seconds[rank] = now() - start;
    meet();
    Series& series = board->series[number];
    if (rank == 0 && keep && series.rounds < kMaxRounds) {
      series.seconds[series.rounds++] = *std::max_element(board->seconds, board->seconds + world);
    }
    meet();
  }

  /// Stores the sum of `bytes` over ranks in series `number`.
  void count(int number, double bytes) const {
    board->counted[rank] = bytes;
    meet();
    if (rank == 0) {
      double sum = 0;
      for (int i = 0; i < world; i++) sum += board->counted[i];
      board->series[number].counted_bytes = sum;
    }
    meet();
  }
};

/// Runs `work` in `world` processes, and waits for them. If one fails, ends the others and returns
/// false.
inline bool fork_ranks(Board* board, int world, int threads,
                       const std::function<void(Rank&)>& work) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < world; rank++) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      Rank self{board, rank, world, threads};
      work(self);
      std::fflush(nullptr);
      _exit(0);
    }
    ranks.push_back(pid);
  }
  bool sound = true;
  for (int left = world; left > 0; left--) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended < 0) return false;
    ranks.erase(std::remove(ranks.begin(), ranks.end(), ended), ranks.end());
    if (status == 0) continue;
    sound = false;
    for (const pid_t pid : ranks) kill(pid, SIGKILL);
  }
  return sound;
}

}  // namespace bench
