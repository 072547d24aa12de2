// SPDX-License-Identifier: Apache-2.0
#include "base/file_size_signal.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace zero {
namespace {

sigset_t only_file_size() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

FileSizeSignal::FileSizeSignal() {
  if (is_pending()) return;  // the caller already blocks the signal, and this one is the caller's
  const sigset_t set = only_file_size();
  sigset_t before;
  held_ = pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && sigismember(&before, SIGXFSZ) == 0;
}

FileSizeSignal::~FileSizeSignal() {
  if (!held_) return;
  const sigset_t set = only_file_size();
  const timespec now{};
  while (is_pending() && sigtimedwait(&set, nullptr, &now) > 0) {
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace zero
