// SPDX-License-Identifier: Apache-2.0
#include "ending.h"

#include <unistd.h>

#include <utility>

namespace zero::tool {
namespace {

constexpr int kEnding[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM};

/// Set before signals are handled, and never changed afterwards. Never freed, because a signal may
/// arrive while the program exits.
const std::vector<std::string>* doomed_files = nullptr;
const std::string* doomed_directory = nullptr;

void remove_and_end(int number) {
  for (const std::string& file : *doomed_files) unlink(file.c_str());
  rmdir(doomed_directory->c_str());
  raise(number);  // as if it had not been handled
}

}  // namespace

EndingHeld::EndingHeld() {
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  sigemptyset(&held_);
  for (const int number : kEnding) {
    struct sigaction taken {};
    sigaction(number, nullptr, &taken);  // an ignored one would also be pending
    if (taken.sa_handler != SIG_IGN && sigismember(&before, number) == 0) sigaddset(&held_, number);
  }
  pthread_sigmask(SIG_BLOCK, &held_, nullptr);
}

bool EndingHeld::waits() const {
  sigset_t pending;
  sigpending(&pending);
  sigandset(&pending, &pending, &held_);
  return sigisemptyset(&pending) == 0;
}

EndingHeld::~EndingHeld() { pthread_sigmask(SIG_UNBLOCK, &held_, nullptr); }

void remove_on_signals(std::vector<std::string> files, std::string directory) {
  doomed_files = new std::vector(std::move(files));
  doomed_directory = new std::string(std::move(directory));
  for (const int number : kEnding) {
    struct sigaction before {
    }, action{};
    action.sa_handler = remove_and_end;
    action.sa_flags = SA_RESETHAND;
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)
      sigaction(number, &action, nullptr);
  }
}

}  // namespace zero::tool
