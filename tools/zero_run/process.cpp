// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "options.h"

namespace zero_run {
namespace {

/// Runs in the guard's process. The groups arrive one by one, then 0 if all is well.
void guard_until_end(int fd) {
  static pid_t groups[kMostRanks];
  int count = 0;
  for (;;) {
    pid_t group;
    const ssize_t bytes = read(fd, &group, sizeof group);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof group) break;
    if (group == 0) return;
    if (count < kMostRanks) groups[count++] = group;
  }
  for (int i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
}

}  // namespace

int64_t now_ms() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

void give_up(const char* what) {
  fprintf(stderr, "zero-run: %s: %s\n", what, strerror(errno));
  exit(kSystem);
}

void open_standard_streams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = dup(fd);
  if (fd >= 0) close(fd);
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) give_up("cannot make a pipe");
  return {ends[0], ends[1]};
}

Pipe make_terminal(int like, size_t taken) {
  char name[64];
  Pipe ends;
  ends.read_end = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ends.read_end < 0) return {};
  if (grantpt(ends.read_end) == 0 && unlockpt(ends.read_end) == 0 &&
      ptsname_r(ends.read_end, name, sizeof name) == 0) {
    ends.write_end = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  termios mode;
  if (ends.write_end < 0 || tcgetattr(ends.write_end, &mode) != 0) {
    close(ends.read_end);
    if (ends.write_end >= 0) close(ends.write_end);
    return {};
  }
  mode.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // the terminal `like` adds each '\r'
  mode.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  tcsetattr(ends.write_end, TCSANOW, &mode);
  set_size(ends.read_end, like, taken);
  return ends;
}

void set_size(int to, int like, size_t taken) {
  winsize size;
  if (ioctl(like, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_col > taken) size.ws_col = static_cast<unsigned short>(size.ws_col - taken);
  ioctl(to, TIOCSWINSZ, &size);
}

void do_not_block(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::string random_name() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) give_up("cannot get random bytes");
  std::string name = "zero-run-";
  for (const unsigned char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

void Guard::start() {
  const Pipe pipe = make_pipe();
  pid_ = fork();
  if (pid_ < 0) give_up("cannot start a process");
  if (pid_ == 0) {
    setsid();
    close(pipe.write_end);
    guard_until_end(pipe.read_end);
    _exit(0);
  }
  close(pipe.read_end);
  fd_ = pipe.write_end;
}

void Guard::watch(pid_t group) {
  // If something has killed the guard, the job works without it.
  if (write(fd_, &group, sizeof group) < 0) return;
}

void Guard::dismiss() {
  watch(0);
  close(fd_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Signals::Signals() {
  signal(SIGCHLD, SIG_DFL);  // if it were inherited as ignored, there would be nothing to wait for
  old_pipe_ = signal(SIGPIPE, SIG_IGN);
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD, SIGWINCH}) {
    struct sigaction action;
    sigaction(number, nullptr, &action);
    // A caller that ignores one, as nohup does, means the ranks as well.
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, number);
  }
  sigprocmask(SIG_BLOCK, &watched, &old_mask_);
  fd_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) give_up("cannot watch signals");
}

void Signals::restore() const {
  signal(SIGPIPE, old_pipe_);
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

int Signals::next() const {
  signalfd_siginfo info;
  return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

void TerminalInput::start(int to_rank) {
  to_rank_ = to_rank;
  do_not_block(to_rank_);
}

pollfd TerminalInput::interest() const {
  if (to_rank_ < 0) return {-1, 0, 0};
  if (!typed_.empty()) return {to_rank_, POLLOUT, 0};
  // Reading in the background would stop zero-run.
  return {tcgetpgrp(STDIN_FILENO) == getpgrp() ? STDIN_FILENO : -1, POLLIN, 0};
}

bool TerminalInput::move_some() {
  bool shown = false;
  if (typed_.empty()) {
    char bytes[4096];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (count <= 0) {
      stop();
      return false;
    }
    typed_.assign(bytes, static_cast<size_t>(count));
    termios mode;
    shown = typed_.find('\n') != std::string::npos && tcgetattr(STDIN_FILENO, &mode) == 0 &&
            (mode.c_lflag & (ECHO | ECHONL)) != 0;
  }
  const ssize_t count = write(to_rank_, typed_.data(), typed_.size());
  if (count > 0) typed_.erase(0, static_cast<size_t>(count));
  if (count < 0 && errno != EAGAIN && errno != EINTR) stop();
  return shown;
}

void TerminalInput::stop() {
  close(to_rank_);
  to_rank_ = -1;
}

}  // namespace zero_run
