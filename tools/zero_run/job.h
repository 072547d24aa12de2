// SPDX-License-Identifier: Apache-2.0
// The ranks of one job, from start to end. Each leads a process group of its own, so that a signal
// reaches it once, and with it whatever it has started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "line_source.h"
#include "lines.h"
#include "options.h"
#include "process.h"

namespace zero_run {

class Job {
 public:
  explicit Job(const Options& options);
  /// Returns zero-run's exit code.
  int run();

 private:
  struct Rank {
    pid_t pid = -1;  // and its group; reaped last of all, so that the number stays its own
    bool ended = false;
    bool told_to_end = false;  // by us, before it did
    int code = 0;              // exit code
    int signal = 0;            // or what killed it
    int order = 0;             // of ending: 1, 2, ...
    int weight = 0;            // how much this end counts for the exit code; 0: not at all
  };

  // Starting.
  int start(int rank);  // 0 or the errno of exec
  Pipe make_stream(Lines& lines, size_t prefix_length) const;
  void read_from(const Pipe& stream, int id, const std::string& prefix, Lines& lines);
  [[noreturn]] void become(int rank, pid_t parent, int input, int out, int err, int failure) const;
  int not_started(int error);

  // Running.
  bool all_ended() const;
  void move_bytes(int64_t wait_ms);
  void read_sources(const pollfd* polled);
  void lose_place();
  int64_t wait_ms() const;
  void resize();
  void take_signals();
  void take_signal(int number);
  void stop_and_continue();
  void look_for_ends();
  int weigh(const Rank& rank) const;
  void judge(const Rank& rank);
  void press_on();

  // Ending.
  void end_leftovers();
  void flush();
  int exit_code() const;

  bool passed_on(int number) const;
  void signal_all(int number) const;
  void end_all(int number);
  /// Where stderr goes: with stdout if both end in one place.
  Lines& errors() { return one_destination_ ? out_ : err_; }
  void say(const std::string& line) { errors().add(-1, "zero-run: ", line + '\n'); }

  const Options options_;
  const std::string name_;
  const bool one_destination_;
  Signals signals_;
  Guard guard_;
  TerminalInput input_;
  Lines out_, err_;
  std::vector<LineSource> sources_;
  std::vector<Rank> ranks_;
  std::vector<int> passed_on_;  // signals
  int ends_ = 0;
  int64_t deadline_ = 0;  // when to press on; 0: never
  bool child_ended_ = true;
  bool failed_ = false;
  bool terminated_ = false;
  bool waited_for_ = false;  // the groups' numbers may be others' now
};

}  // namespace zero_run
