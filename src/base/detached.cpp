// SPDX-License-Identifier: Apache-2.0
#include "base/detached.h"

#include <pthread.h>

#include <memory>

#include "base/os.h"
#include "base/text.h"

namespace zero {
namespace {

using Body = std::function<void()>;

void* run(void* argument) {
  const std::unique_ptr<Body> body(static_cast<Body*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Status start_detached(Body body) {
  auto owned = std::make_unique<Body>(std::move(body));
  pthread_t thread;
  if (const int error = start_thread(thread, run, owned.get()))
    return Status(ZERO_ERR_SYSTEM, text("starting a thread: ", errno_text(error)));
  (void)owned.release();
  pthread_detach(thread);
  return {};
}

}  // namespace zero
