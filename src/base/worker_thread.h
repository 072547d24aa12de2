// SPDX-License-Identifier: Apache-2.0
// Threads of the library's own. They block all signals and compute in the standard
// FloatEnvironment; what they run throws nothing.
#pragma once

#include <pthread.h>

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace zero {

class WorkerThread {
 public:
  WorkerThread() = default;
  WorkerThread(WorkerThread&& other) noexcept : thread_(std::exchange(other.thread_, {})) {}
  ~WorkerThread() { join(); }

  /// Starts a thread that runs `body`. Fails with ZERO_ERR_SYSTEM: "starting WHAT: why".
  Status start(std::string_view what, std::function<void()> body);
  bool started() const { return thread_.has_value(); }
  /// Waits until the thread has ended. Its owner must have told it to end.
  void join();
  /// Gives up the thread: nobody waits for it.
  void detach() { pthread_detach(*std::exchange(thread_, {})); }

 private:
  std::optional<pthread_t> thread_;
};

/// Runs `body` on a thread that nobody waits for, because calls into foreign libraries may never
/// return. `body` must own all that it uses. Fails with ZERO_ERR_SYSTEM.
Status start_detached(std::function<void()> body);

}  // namespace zero
