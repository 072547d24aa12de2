// SPDX-License-Identifier: Apache-2.0
// Runs calls of other libraries that may never return. A separate thread makes the call, and is
// abandoned if the call does not return.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/interrupt.h"
#include "base/os.h"
#include "base/worker_thread.h"

namespace zero {

template <class Answer>
class Apart {
 public:
  /// Runs `body` on a thread. `body` must not throw, and must own everything that it uses.
  Status start(std::function<Answer()> body) {
    return start_detached([outcome = outcome_, body = std::move(body)] {
      Answer answer = body();
      const std::lock_guard lock(outcome->mutex);
      outcome->answer.emplace(std::move(answer));
      outcome->came.notify_all();
    });
  }

  /// Returns the result of `body` once. Returns nothing if `body` does not finish within
  /// `limit_ms`, or if the program interrupts the call.
  std::optional<Answer> await(int64_t limit_ms) {
    constexpr int64_t kLookMs = 50;
    const Deadline deadline(limit_ms);
    do {
      std::unique_lock lock(outcome_->mutex);
      // Wait: a slice of limit_ms.
      outcome_->came.wait_for(lock,
                              std::chrono::milliseconds(std::min(deadline.left_ms(), kLookMs)),
                              [this] { return outcome_->answer.has_value(); });
      if (outcome_->answer.has_value()) return std::move(outcome_->answer);
    } while (!deadline.passed() && !interrupted());
    return std::nullopt;
  }

 private:
  struct Outcome {
    std::mutex mutex;
    std::condition_variable came;
    std::optional<Answer> answer;
  };
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
};

}  // namespace zero
