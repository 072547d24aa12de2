// SPDX-License-Identifier: Apache-2.0
#include "base/worker_thread.h"

#include <signal.h>

#include <memory>
#include <utility>

#include "base/float_environment.h"
#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

using Body = std::function<void()>;

void* run(void* argument) {
  const std::unique_ptr<Body> body(static_cast<Body*>(argument));
  const FloatEnvironment environment;
  (*body)();
  return nullptr;
}

}  // namespace

Status WorkerThread::start(std::string_view what, Body body) {
  auto owned = std::make_unique<Body>(std::move(body));
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
  const int error = os().pthread_create(&thread, nullptr, run, owned.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return Status(ZERO_ERR_SYSTEM, text("starting ", what, ": ", errno_text(error)));
  (void)owned.release();
  thread_ = thread;
  return Status();
}

void WorkerThread::join() {
  // Wait: what it runs has been told to end, and says itself how soon it does.
  if (started()) pthread_join(*std::exchange(thread_, {}), nullptr);
}

Status start_detached(Body body) {
  WorkerThread thread;
  ZERO_TRY(thread.start("a thread", std::move(body)));
  thread.detach();
  return Status();
}

}  // namespace zero
