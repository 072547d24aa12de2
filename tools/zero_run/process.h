// SPDX-License-Identifier: Apache-2.0
// What zero-run needs of the system: pipes, signals, the terminal's input, and a process that
// outlives it.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace zero_run {

int64_t now_ms();

/// Say what the system refused, and exit; the guard then ends what runs.
[[noreturn]] void give_up(const char* what);

/// Descriptors 0 to 2 are open afterwards, or a pipe would become a standard stream.
void open_standard_streams();

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

/// Ranks get neither end, except by dup2.
Pipe make_pipe();
void do_not_block(int fd);

/// A terminal of the size of `like`, less `taken` columns, that changes no byte: read_end is
/// zero-run's, write_end a rank's. Both are -1 if the system gives none.
Pipe make_terminal(int like, size_t taken);
/// Give terminal `to` the size of `like`, less `taken` columns; nothing if either is none.
void set_size(int to, int like, size_t taken);

/// Of a job: no other has it.
std::string random_name();

/// Ends all ranks' groups when zero-run has gone without a word, as by SIGKILL: a rank itself dies
/// with it anyway, what the rank has started would not.
class Guard {
 public:
  void start();
  void watch(pid_t group);
  void dismiss();

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

/// The signals that zero-run reads instead of being hit by them, and the state before for ranks.
class Signals {
 public:
  Signals();
  void restore() const;
  int fd() const { return fd_; }
  /// The next that has come, or 0.
  int next() const;

 private:
  int fd_ = -1;
  sigset_t old_mask_;
  sighandler_t old_pipe_ = nullptr;
};

/// Rank 0's input from a terminal, where only the foreground group may read, which is zero-run's.
class TerminalInput {
 public:
  void start(int to_rank);
  /// What to poll for; fd -1 for nothing.
  pollfd interest() const;
  /// True if the terminal has shown a typed line end.
  bool move_some();

 private:
  void stop();

  int to_rank_ = -1;
  std::string typed_;
};

}  // namespace zero_run
