// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace zero_run {
namespace {

constexpr int64_t kOthersMs = 2000;     // after a failure, for the other ranks to end on their own
constexpr int64_t kInterruptMs = 5000;  // the same after SIGINT
constexpr int64_t kTerminateMs = 5000;  // from SIGTERM to SIGKILL
constexpr int64_t kLeftoversMs = 2000;  // for processes that ranks have left behind
constexpr int64_t kLookAgainMs = 1000;  // for what no descriptor reports: a move to the foreground

// How much a rank's end counts for the exit code. A death counts more than an exit, because ranks
// that survive a death soon fail on their own, and their ends may be noticed first.
enum Weight { kSuccess, kToldToEnd, kSignalPassedOn, kFailedExit, kKilled };

std::string ending(size_t rank, pid_t pid, int code, int number) {
  const std::string who =
      "rank " + std::to_string(rank) + " (process " + std::to_string(pid) + ") ";
  if (number == 0) return who + "exited with code " + std::to_string(code);
  return who + "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

/// Returns the error that a rank wrote because it could not be executed, or 0.
int exec_error(const Pipe& failure) {
  close(failure.write_end);
  int error = 0;
  while (read(failure.read_end, &error, sizeof error) < 0 && errno == EINTR) {
  }
  close(failure.read_end);
  return error;
}

/// torchrun accepts scripts without their interpreter.
std::string hint(const std::string& program) {
  return program.ends_with(".py") ? "; use python3 " + program : "";
}

}  // namespace

Job::Job(const Options& options)
    : options_(options),
      name_(random_name()),
      one_destination_(same_destination(STDOUT_FILENO, STDERR_FILENO)),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {}

int Job::run() {
  guard_.start();
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const int error = start(rank);
    if (error != 0) return not_started(error);
  }
  while (!all_ended()) {
    move_bytes(wait_ms());
    take_signals();
    if (child_ended_) look_for_ends();
    if (deadline_ != 0 && now_ms() >= deadline_) press_on();
  }
  end_leftovers();
  guard_.dismiss();
  flush();
  return exit_code();
}

// ---- Starting.

int Job::start(int rank) {
  const std::string prefix = "[" + std::to_string(rank) + "] ";
  Pipe out{-1, STDOUT_FILENO}, err{-1, STDERR_FILENO};
  if (options_.prefix) {
    out = make_stream(out_, prefix.size());
    // One terminal for both streams keeps their order, as without zero-run.
    const bool shared = one_destination_ && isatty(out.write_end);
    err = shared ? Pipe{-1, out.write_end} : make_stream(errors(), prefix.size());
  }
  const Pipe input = rank == 0 && isatty(STDIN_FILENO) ? make_pipe() : Pipe{};
  const Pipe failure = make_pipe();  // closed by a successful exec
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) give_up("cannot start a rank");
  if (pid == 0) {
    become(rank, parent, input.read_end, out.write_end, err.write_end, failure.write_end);
  }
  setpgid(pid, pid);  // the parent and the child both call this, whichever is first
  guard_.watch(pid);
  ranks_.push_back({.pid = pid});

  read_from(out, 2 * rank, prefix, out_);
  read_from(err, 2 * rank + 1, prefix, errors());
  if (input.read_end >= 0) {
    close(input.read_end);
    input_.start(input.write_end);
  }
  return exec_error(failure);
}

/// Returns a stream for a rank to write to: a terminal if its lines go to one, or else a pipe.
Pipe Job::make_stream(Lines& lines, size_t prefix_length) const {
  const int fd = lines.output().fd();
  const Pipe terminal = isatty(fd) ? make_terminal(fd, prefix_length) : Pipe{};
  return terminal.read_end >= 0 ? terminal : make_pipe();
}

void Job::read_from(const Pipe& stream, int id, const std::string& prefix, Lines& lines) {
  if (stream.read_end < 0) return;
  close(stream.write_end);
  do_not_block(stream.read_end);
  sources_.emplace_back(stream.read_end, id, prefix, &lines);
}

/// Runs in the rank's process.
void Job::become(int rank, pid_t parent, int input, int out, int err, int failure) const {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kSystem);  // the parent died before the prctl
  signals_.restore();
  if (rank > 0) input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input >= 0) dup2(input, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  const std::string number = std::to_string(rank);
  const std::string world = std::to_string(options_.ranks);
  setenv("ZERO_RANK", number.c_str(), 1);
  setenv("ZERO_LOCAL_RANK", number.c_str(), 1);
  setenv("ZERO_WORLD_SIZE", world.c_str(), 1);
  setenv("ZERO_LOCAL_WORLD_SIZE", world.c_str(), 1);
  setenv("ZERO_JOB", name_.c_str(), 1);
  setenv("PYTHONUNBUFFERED", "1", 0);  // otherwise prints wait for 8 KiB in a pipe
  execvp(options_.program[0], options_.program);
  const int error = errno;
  if (write(failure, &error, sizeof error) < 0) _exit(kSystem);
  _exit(kNotFound);
}

int Job::not_started(int error) {
  signal_all(SIGKILL);
  if (error == ENOENT) {
    fprintf(stderr, "zero-run: program '%s' was not found%s\n", options_.program[0],
            hint(options_.program[0]).c_str());
    return kNotFound;
  }
  fprintf(stderr, "zero-run: program '%s' cannot be executed: %s%s\n", options_.program[0],
          strerror(error), hint(options_.program[0]).c_str());
  return kNotExecutable;
}

// ---- Running.

bool Job::all_ended() const { return ends_ == options_.ranks; }

int64_t Job::wait_ms() const {
  if (deadline_ == 0) return kLookAgainMs;
  return std::clamp<int64_t>(deadline_ - now_ms(), 0, kLookAgainMs);
}

/// Waits until something happens, and moves input and output.
void Job::move_bytes(int64_t wait_ms) {
  Output& out = out_.output();
  Output& err = err_.output();
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0},
                             {out.pending() ? out.fd() : -1, POLLOUT, 0},
                             {err.pending() ? err.fd() : -1, POLLOUT, 0},
                             input_.interest()};
  const size_t first_source = fds.size();
  int64_t due = std::min(out_.due_ms(), err_.due_ms());
  for (const LineSource& source : sources_) {
    fds.push_back({source.lines()->output().full() ? -1 : source.fd(), POLLIN, 0});
    due = std::min(due, source.due_ms());
  }
  if (due != Lines::kNever) wait_ms = std::clamp<int64_t>(due - now_ms(), 0, wait_ms);
  const int ready = poll(fds.data(), fds.size(), static_cast<int>(wait_ms));
  if (ready < 0 && errno != EINTR) give_up("cannot wait");
  if (ready < 0) return;
  if (fds[1].revents != 0) out.write_some();
  if (fds[2].revents != 0) err.write_some();
  if (fds[3].revents != 0 && input_.move_some()) lose_place();
  read_sources(fds.data() + first_source);
}

/// Reads the sources that poll reported. Then shows what has waited long enough.
void Job::read_sources(const pollfd* polled) {
  const int64_t now = now_ms();
  for (size_t i = 0; i < sources_.size(); ++i) {
    LineSource& source = sources_[i];
    if (polled[i].revents != 0) source.read_some(now);
    if (polled[i].fd >= 0) source.show_if_due(now);
    // The reader of the output has gone. The rank's next write fails, as it would without zero-run.
    if (source.lines()->output().broken()) source.close();
  }
  out_.draw_if_due(now);
  err_.draw_if_due(now);
}

/// The terminal's cursor has moved to a new line, but zero-run did not move it.
void Job::lose_place() {
  for (Lines* lines : {&out_, &err_}) {
    if (same_destination(STDIN_FILENO, lines->output().fd())) lines->lose_place();
  }
}

void Job::resize() {
  for (const LineSource& source : sources_) {
    set_size(source.fd(), source.lines()->output().fd(), source.prefix().size());
  }
  signal_all(SIGWINCH);
}

void Job::take_signals() {
  while (const int number = signals_.next()) take_signal(number);
}

void Job::take_signal(int number) {
  if (number == SIGCHLD) {
    child_ended_ = true;
    return;
  }
  if (number == SIGTSTP) return stop_and_continue();
  if (number == SIGWINCH) return resize();
  if (number == SIGINT && passed_on(SIGINT)) {
    say("interrupted twice: killing the ranks");
    deadline_ = 0;
    return end_all(SIGKILL);
  }
  passed_on_.push_back(number);
  signal_all(number);
  // SIGTERM and the others set no deadline: the sender knows how long a last checkpoint may take.
  if (number == SIGINT && deadline_ == 0) deadline_ = now_ms() + kInterruptMs;
}

void Job::stop_and_continue() {
  signal_all(SIGSTOP);
  raise(SIGSTOP);
  out_.lose_place();
  err_.lose_place();
  resize();
  signal_all(SIGCONT);
}

void Job::look_for_ends() {
  child_ended_ = false;
  for (Rank& rank : ranks_) {
    if (rank.ended) continue;
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      give_up("cannot wait for a rank");
    }
    if (info.si_pid == 0) continue;
    rank.ended = true;
    rank.order = ++ends_;
    (info.si_code == CLD_EXITED ? rank.code : rank.signal) = info.si_status;
    rank.weight = weigh(rank);
    judge(rank);
  }
}

int Job::weigh(const Rank& rank) const {
  if (rank.signal == 0 && rank.code == 0) return kSuccess;
  if (rank.told_to_end) return kToldToEnd;
  if (rank.signal == 0) return kFailedExit;
  return passed_on(rank.signal) ? kSignalPassedOn : kKilled;
}

/// Sets a deadline for the other ranks if this rank has failed.
void Job::judge(const Rank& rank) {
  if (rank.weight < kFailedExit || (failed_ && rank.weight < kKilled)) return;
  failed_ = true;
  say(ending(static_cast<size_t>(&rank - ranks_.data()), rank.pid, rank.code, rank.signal));
  if (deadline_ == 0 && !all_ended()) deadline_ = now_ms() + kOthersMs;
}

void Job::press_on() {
  if (terminated_) {
    say("ranks did not end after SIGTERM: killing them");
    deadline_ = 0;
    return end_all(SIGKILL);
  }
  terminated_ = true;
  deadline_ = now_ms() + kTerminateMs;
  end_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped rank would not notice
}

bool Job::passed_on(int number) const {
  return std::find(passed_on_.begin(), passed_on_.end(), number) != passed_on_.end();
}

void Job::signal_all(int number) const {
  if (waited_for_) return;
  for (const Rank& rank : ranks_) kill(-rank.pid, number);
}

void Job::end_all(int number) {
  look_for_ends();
  for (Rank& rank : ranks_) {
    if (!rank.ended) rank.told_to_end = true;
  }
  signal_all(number);
}

// ---- Ending.

/// Runs after all ranks have ended. Gives the processes that they have started a moment to end.
void Job::end_leftovers() {
  for (const Rank& rank : ranks_) {
    while (waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  const auto any_left = [&] {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return kill(-rank.pid, 0) == 0; });
  };
  constexpr int64_t kStepMs = 10;
  const int64_t end = now_ms() + kLeftoversMs;
  while (any_left()) {
    move_bytes(kStepMs);
    take_signals();
    if (now_ms() < end && !passed_on(SIGINT)) continue;
    signal_all(SIGKILL);
    break;
  }
  waited_for_ = true;
  // The pipes get no more data, except from processes that have left their group.
  for (LineSource& source : sources_) {
    while (source.fd() >= 0 && source.read_some(now_ms())) {
    }
    source.close();
  }
}

/// Writes all output, until nobody reads it and a signal asks for an end.
void Job::flush() {
  const size_t signals = passed_on_.size();
  while ((out_.output().pending() || err_.output().pending()) && passed_on_.size() == signals) {
    move_bytes(kLookAgainMs);
    take_signals();
  }
}

int Job::exit_code() const {
  const auto less = [](const Rank& a, const Rank& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.order > b.order;
  };
  const Rank& culprit = *std::max_element(ranks_.begin(), ranks_.end(), less);
  // No rank weighs more than that only after SIGINT.
  if (culprit.weight == kToldToEnd) return 128 + SIGINT;
  return culprit.signal != 0 ? 128 + culprit.signal : culprit.code;
}

}  // namespace zero_run
