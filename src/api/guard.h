// SPDX-License-Identifier: Apache-2.0
// The boundary: what every C function does around its body. Exceptions end here.
#pragma once

#include <memory>
#include <optional>

#include "api/handles.h"
#include "base/float_environment.h"
#include "base/status.h"
#include "base/text.h"
#include "step/queued/queue.h"
#include "step/roll_call.h"

namespace zero::api {

/// Keep `text` as this thread's last error, behind the name of the call that it is about.
void remember(std::string_view call, std::string_view text) noexcept;
const char* remembered() noexcept;

/// The C function in which a call of a function with this default stands.
#define ZERO_CALLER const char* caller = __builtin_FUNCTION()

inline zero_status report(const Status& status, ZERO_CALLER) noexcept {
  if (!status.ok()) remember(caller, status.text());
  return status.code();
}

/// The code of the exception that is being handled. What those of the standard library say is kept
/// as report() does.
zero_status report_exception(const char* caller) noexcept;

/// Run a body that returns Status. Whatever the caller's thread rounds like, libzero's numbers are
/// the same on every rank.
template <class Body>
zero_status guard(const Body& body, ZERO_CALLER) noexcept {
  const FloatEnvironment environment;
  try {
    const Inside inside;
    return report(inside.forked().ok() ? body() : inside.forked(), caller);
  } catch (...) {
    return report_exception(caller);
  }
}

/// One thread at a time inside an optimizer.
class Turn {
 public:
  explicit Turn(OptimHandle& handle) : handle_(handle) {
    taken_ = handle.inside.compare_exchange_strong(found_, std::this_thread::get_id());
  }
  ~Turn() {
    if (taken_) handle_.inside = std::thread::id();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// This thread is in there already: inside a function of the caller's that the library called.
  bool again() const { return !taken_ && found_ == std::this_thread::get_id(); }

  Status check() const {
    if (taken_) return Status();
    return Status(ZERO_ERR_BUSY, again() ? "this optimizer is in the call that called this function"
                                         : "another thread is inside this optimizer");
  }

 private:
  OptimHandle& handle_;
  std::thread::id found_;
  bool taken_;
};

inline Status check_out(const void* out, const char* what) {
  if (out != nullptr) return Status();
  return Status(ZERO_ERR_ARGUMENT, std::string(what) + " is NULL");
}

/// What a call does with steps that a device has still to make: wait, as it asks for or changes
/// what they leave, or go behind them.
enum class Steps { awaited, behind };

/// A step that ends in the background ends first.
inline Status await_steps(OptimHandle& handle, Steps steps) {
  if (handle.background != nullptr) (void)handle.background->complete();
  return steps == Steps::awaited ? queued::settle(*handle.optim) : Status();
}

/// A thread inside an optimizer, as long as this lives.
class Visit {
 public:
  enum class Reads { now, outside };

  /// Reads::now: it may come out of a function of the caller's, and reads what stands still then.
  Visit(const zero_optim* optim, Steps steps, Reads reads = Reads::outside)
      : steps_(steps), status_(begin(optim, reads)) {}

  bool ok() const { return status_.ok(); }
  const Status& failure() const { return status_; }
  Optimizer& optim() { return *handle_->optim; }

  /// What was changed goes to the device.
  Status end(Status status) {
    const Status sent = queued::send_changes(optim(), steps_ == Steps::awaited);
    return status.ok() ? sent : status;
  }

 private:
  Status begin(const zero_optim* optim, Reads reads) {
    ZERO_TRY(Status(inside_.forked()));
    handle_ = ZERO_TRY(find_handle(optim));
    turn_.emplace(*handle_);
    if (reads == Reads::now && turn_->again()) return Status();
    ZERO_TRY(turn_->check());
    return await_steps(*handle_, steps_);
  }

  const Inside inside_;
  const Steps steps_;
  std::shared_ptr<OptimHandle> handle_;
  std::optional<Turn> turn_;
  const Status status_;
};

/// A local call: body(Optimizer&) -> Status.
template <class Body>
zero_status on_optim(const zero_optim* optim, const Body& body, Steps steps = Steps::awaited,
                     ZERO_CALLER) noexcept {
  const FloatEnvironment environment;
  try {
    Visit visit(optim, steps);
    return report(visit.ok() ? visit.end(body(visit.optim())) : visit.failure(), caller);
  } catch (...) {
    return report_exception(caller);
  }
}

/// A local call that only reads what stands still while a function of the caller's runs.
template <class Body>
zero_status on_query(const zero_optim* optim, const Body& body, Steps steps = Steps::awaited,
                     ZERO_CALLER) noexcept {
  const FloatEnvironment environment;
  try {
    Visit visit(optim, steps, Visit::Reads::now);
    return report(visit.ok() ? body(visit.optim()) : visit.failure(), caller);
  } catch (...) {
    return report_exception(caller);
  }
}

/// One number in the memory of the optimizer's device.
inline Result<GivenSetting> read_given(const Optimizer& optim, const void* data, int32_t dtype,
                                       std::string_view what) {
  Device* const device = optim.comm->device().get();
  if (device == nullptr)
    return Status(ZERO_ERR_UNSUPPORTED,
                  text(what, " is read from memory by steps on a GPU; on the host set its value"));
  if (dtype != ZERO_FLOAT32 && dtype != ZERO_FLOAT64)
    return Status(ZERO_ERR_ARGUMENT,
                  text(what, ": dtype is ", dtype, "; it must be ZERO_FLOAT32 or ZERO_FLOAT64"));
  const GivenSetting given{data, static_cast<DType>(dtype)};
  if (data == nullptr) return given;
  const size_t bytes = size_of(given.dtype);
  ZERO_TRY(device->check(data, bytes, what));
  if (reinterpret_cast<uintptr_t>(data) % bytes == 0) return given;
  return Status(ZERO_ERR_ARGUMENT, text("the memory of ", what, " is not aligned to its type"));
}

/// The number of the capture that `stream`, one of the optimizer's device, is part of; 0: none.
/// NULL on the host.
inline Result<uint64_t> find_capture(const Optimizer& optim, void* stream) {
  Device* const device = optim.comm->device().get();
  if (device == nullptr) {
    if (stream == nullptr) return uint64_t{0};
    return Status(ZERO_ERR_ARGUMENT, "stream must be NULL on the host");
  }
  ZERO_TRY(device->check_stream(stream));
  return device->capturing(stream);
}

/// Of a call that cannot be captured.
inline Status check_stream(const Optimizer& optim, void* stream) {
  if (ZERO_TRY(find_capture(optim, stream)) == 0) return Status();
  return Status(ZERO_ERR_UNSUPPORTED,
                "the stream is being captured, and this call cannot be part of a graph: make it "
                "outside of the capture");
}

}  // namespace zero::api
