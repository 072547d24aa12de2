// SPDX-License-Identifier: Apache-2.0
// Wraps what zero-run needs of the system: pipes, signals, the terminal's input, and a process that
// outlives it.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace zero_run {

int64_t now_ms();

/// Prints what the system refused, and exits. The guard then ends all running ranks.
[[noreturn]] void give_up(const char* what);

/// Opens descriptors 0 to 2 if they are closed. Otherwise a pipe could become a standard stream.
void open_standard_streams();

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

/// Returns a pipe. Ranks get neither end, except by dup2.
Pipe make_pipe();
void do_not_block(int fd);

/// Makes a terminal that has the size of `like` less `taken` columns and changes no byte: read_end
/// is zero-run's, write_end a rank's. Both are -1 if the system has none.
Pipe make_terminal(int like, size_t taken);
/// Gives terminal `to` the size of `like` less `taken` columns. Does nothing if one is missing.
void set_size(int to, int like, size_t taken);

/// Returns a name for a job, which no other job has.
std::string random_name();

/// Ends all ranks' groups if zero-run dies without ending them, as by SIGKILL. A rank itself then
/// dies as well, but the processes that it has started do not.
class Guard {
 public:
  void start();
  void watch(pid_t group);
  void dismiss();

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

/// Lets zero-run read signals instead of being hit by them. Restores the previous state for ranks.
class Signals {
 public:
  Signals();
  void restore() const;
  int fd() const { return fd_; }
  /// Returns the next signal that has arrived, or 0.
  int next() const;

 private:
  int fd_ = -1;
  sigset_t old_mask_;
  sighandler_t old_pipe_ = nullptr;
};

/// Passes a terminal's input to rank 0, because only the foreground group, zero-run's, may read it.
class TerminalInput {
 public:
  void start(int to_rank);
  /// Returns what to poll for; fd is -1 for nothing.
  pollfd interest() const;
  /// Returns true if the terminal has shown a typed line end.
  bool move_some();

 private:
  void stop();

  int to_rank_ = -1;
  std::string typed_;
};

}  // namespace zero_run
