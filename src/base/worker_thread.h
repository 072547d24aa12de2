// SPDX-License-Identifier: Apache-2.0
// Threads of the library. They block all signals and use the standard FloatEnvironment. Their
// functions must not throw.
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

  /// Starts a thread that runs `body`. Fails with ZERO_ERR_SYSTEM and the text "starting WHAT:
  /// why".
  Status start(std::string_view what, std::function<void()> body);
  bool started() const { return thread_.has_value(); }
  /// Waits until the thread has ended. The owner must have told it to end.
  void join();
  /// Detaches the thread, so that nothing waits for it.
  void detach() { pthread_detach(*std::exchange(thread_, {})); }

 private:
  std::optional<pthread_t> thread_;
};

/// Runs `body` on a detached thread, because calls into other libraries may never return. `body`
/// must own everything that it uses. Fails with ZERO_ERR_SYSTEM.
Status start_detached(std::function<void()> body);

}  // namespace zero
