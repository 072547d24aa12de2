// SPDX-License-Identifier: Apache-2.0
// Defines handles: tokens of {type, generation, place} for a table of the process, never addresses.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "optim/optimizer.h"
#include "step/background.h"

namespace zero::api {

/// The object of a zero_optim: the optimizer, and the thread that is inside it.
struct OptimHandle {
  explicit OptimHandle(std::unique_ptr<Optimizer> made) : optim(std::move(made)) {}
  std::unique_ptr<Optimizer> optim;
  std::unique_ptr<Background> background;  // ends steps, or null; destroyed before the optimizer
  std::atomic<std::thread::id> inside{};   // the thread that is inside, or none
  std::mutex announcing;                   // threads that announce gradients wait for each other
};

/// A handle that is made before its object, so that nothing can fail once the object exists. A
/// handle without an object is freed by the destructor.
class NewHandle {
 public:
  NewHandle();
  ~NewHandle();
  NewHandle(const NewHandle&) = delete;
  NewHandle& operator=(const NewHandle&) = delete;

  /// Returns nullptr if `comm` is null, as it is in a child group for a rank without a seat.
  zero_comm* hold(std::shared_ptr<Comm> comm) noexcept;
  zero_optim* hold(std::shared_ptr<OptimHandle> optim) noexcept;

 private:
  const size_t place_;
  bool held_ = false;
};

template <class Object>
auto add_handle(std::shared_ptr<Object> object) {
  return NewHandle().hold(std::move(object));
}

/// Return the object of a handle, and keep it alive while the result exists. Fail with
/// ZERO_ERR_ARGUMENT for NULL, closed and foreign handles.
Result<std::shared_ptr<Comm>> find_handle(const zero_comm* handle);
Result<std::shared_ptr<OptimHandle>> find_handle(const zero_optim* handle);

/// Do the same, and close the handle.
Result<std::shared_ptr<Comm>> take_handle(const zero_comm* handle);
Result<std::shared_ptr<OptimHandle>> take_handle(const zero_optim* handle);

/// A call of the API, from its start to its end.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  /// Returns ZERO_ERR_FORKED in a child process whose parent had handles, arenas, or a thread
  /// inside a call at the fork.
  const Status& forked() const { return forked_; }

 private:
  static Status check();
  const Status forked_;
};

}  // namespace zero::api
