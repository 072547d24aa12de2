// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of one job from start to end. Each rank leads its own process group, so that a
// signal reaches it once, together with everything that it has started.
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
    pid_t pid = -1;  // also of its group; reaped last, so that the number is not reused
    bool ended = false;
    bool told_to_end = false;  // by zero-run, before it ended
    int code = 0;              // exit code
    int signal = 0;            // or the signal that killed it
    int order = 0;             // position in the order of ending: 1, 2, ...
    int weight = 0;            // how much this end counts for the exit code; 0: not at all
  };

  // Starting.
  int start(int rank);  // returns 0 or the errno of exec
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
  /// Returns the lines for stderr, which are those of stdout if both end in one place.
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
  bool waited_for_ = false;  // other processes may have the groups' numbers now
};

}  // namespace zero_run
