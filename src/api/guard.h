// SPDX-License-Identifier: Apache-2.0
// Does the work of every C function around its body. Exceptions end here.
#pragma once

#include <memory>
#include <optional>

#include "api/handles.h"
#include "base/float_environment.h"
#include "base/interrupt.h"
#include "base/refusals.h"
#include "step/queued/queue.h"

namespace zero::api {

/// Stores `text` as this thread's last error, after the name of the call that it is about.
void remember(std::string_view call, std::string_view text) noexcept;
const char* remembered() noexcept;

/// Declares a last parameter with the name of the C function that makes the call.
#define ZERO_CALLER const char* caller = __builtin_FUNCTION()

inline zero_status report(const Status& status, ZERO_CALLER) noexcept {
  if (!status.ok()) remember(caller, status.text());
  return status.code();
}

/// Does the same for a call that may also succeed with ZERO_SKIPPED or with a number.
inline zero_status report(const Result<Code>& made, ZERO_CALLER) noexcept {
  return made.ok() ? *made : report(made.failure(), caller);
}

/// Returns the code for the exception that is being handled. Stores the text of a standard
/// exception as report() does.
zero_status report_exception(const char* caller) noexcept;

inline Status as_interrupted(const Status& status) {
  return Status(ZERO_ERR_INTERRUPTED, text("interrupted: ", status.text()));
}
inline Status as_interrupted(const Result<Code>& made) { return as_interrupted(made.failure()); }

/// Runs a body that returns Status or Result<Code>. Sets the floating-point environment, so that
/// libzero's numbers are the same on every rank.
template <class Body>
zero_status guard(const Body& body, ZERO_CALLER) noexcept {
  const FloatEnvironment environment;
  try {
    const Inside inside;
    const InterruptibleCall call;
    if (!inside.forked().ok()) return report(inside.forked(), caller);
    const auto made = body();
    if (!made.ok() && call.heeds()) return report(as_interrupted(made), caller);
    return report(made, caller);
  } catch (...) {
    return report_exception(caller);
  }
}

/// Lets one thread at a time into an optimizer.
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

  /// Returns true if this thread is already in there, inside a user function that the library
  /// called.
  bool again() const { return !taken_ && found_ == std::this_thread::get_id(); }

  Status check() const {
    if (taken_) return Status();
    return Status(ZERO_ERR_BUSY,
                  again() ? "this optimizer is still inside the call that invoked this callback"
                          : "another thread is inside this optimizer");
  }

 private:
  OptimHandle& handle_;
  std::thread::id found_;
  bool taken_;
};

inline Status check_out(const void* out, const char* what) {
  return out != nullptr ? Status() : bad_argument(what, " is NULL");
}

/// How a call treats steps that a device has not finished. awaited: it waits, because it needs or
/// changes their results. queued: it is queued after them.
enum class Steps { awaited, queued };

/// Waits until a step in the background has ended. With Steps::awaited it also settles.
inline Status await_steps(OptimHandle& handle, Steps steps) {
  if (handle.background != nullptr) (void)handle.background->complete();
  return steps == Steps::awaited ? queued::settle(*handle.optim) : Status();
}

/// A call's turn at an optimizer. When it leaves, it sends the call's changes to the device.
class OptimTurn {
 public:
  OptimTurn(const zero_optim* optim, Steps steps) : steps_(steps), entered_(enter(optim)) {}
  ~OptimTurn() {
    if (entered_.ok() && !left_) (void)succeeds([this] { return leave(Status()).ok(); });
  }
  OptimTurn(const OptimTurn&) = delete;
  OptimTurn& operator=(const OptimTurn&) = delete;

  /// Returns OK, or the reason why the call cannot be made.
  const Status& entered() const { return entered_; }
  Optimizer& optim() const { return *handle_->optim; }

  /// Returns `made`, or the reason why its changes could not be sent.
  template <class Made>
  Made leave(Made made) {
    left_ = true;
    const Status sent = queued::send_changes(optim(), steps_ == Steps::awaited);
    return made.ok() && !sent.ok() ? Made(sent) : made;
  }

 private:
  Status enter(const zero_optim* optim) {
    handle_ = ZERO_TRY(find_handle(optim));
    turn_.emplace(*handle_);
    ZERO_TRY(turn_->check());
    return await_steps(*handle_, steps_);
  }

  const Steps steps_;
  std::shared_ptr<OptimHandle> handle_;
  std::optional<Turn> turn_;
  const Status entered_;
  bool left_ = false;
};

/// Makes a local call on an optimizer: body(Optimizer&) returns Status.
template <class Body>
zero_status on_optim(const zero_optim* optim, const Body& body, Steps steps = Steps::awaited,
                     ZERO_CALLER) noexcept {
  const auto make = [&]() -> Status {
    OptimTurn turn(optim, steps);
    ZERO_TRY(turn.entered());
    return turn.leave(body(turn.optim()));
  };
  return guard(make, caller);
}

/// Makes a local call that only reads. A user function may make it, because what it reads does not
/// change while such a function runs.
template <class Body>
zero_status on_query(const zero_optim* optim, const Body& body, Steps steps = Steps::awaited,
                     ZERO_CALLER) noexcept {
  const auto make = [&]() -> Status {
    const std::shared_ptr<OptimHandle> handle = ZERO_TRY(find_handle(optim));
    const Turn turn(*handle);
    if (turn.again()) return body(*handle->optim);
    ZERO_TRY(turn.check());
    ZERO_TRY(await_steps(*handle, steps));
    return body(*handle->optim);
  };
  return guard(make, caller);
}

/// Checks and returns the address of a number in the memory of the optimizer's device.
inline Result<GivenSetting> read_given(const Optimizer& optim, const void* data, int32_t dtype,
                                       std::string_view what) {
  Device* const device = optim.comm->device().get();
  if (device == nullptr)
    return unsupported(what,
                       " is read from memory only by steps on a GPU; on the host, set its value");
  if (dtype != ZERO_FLOAT32 && dtype != ZERO_FLOAT64)
    return bad_argument(what, ": dtype is ", dtype, "; it must be ZERO_FLOAT32 or ZERO_FLOAT64");
  const GivenSetting given{data, static_cast<DType>(dtype)};
  if (data == nullptr) return given;
  const size_t bytes = size_of(given.dtype);
  ZERO_TRY(device->check(data, bytes, what));
  if (reinterpret_cast<uintptr_t>(data) % bytes == 0) return given;
  return bad_argument("the memory of ", what, " is not aligned to its type");
}

/// Returns the number of the capture that `stream` is part of, or 0. `stream` must be a stream of
/// the optimizer's device, or NULL on the host.
inline Result<uint64_t> find_capture(const Optimizer& optim, void* stream) {
  Device* const device = optim.comm->device().get();
  if (device == nullptr) {
    if (stream == nullptr) return uint64_t{0};
    return bad_argument("stream must be NULL on the host");
  }
  ZERO_TRY(device->check_stream(stream));
  return device->capturing(stream);
}

/// Checks the stream of a call that cannot be captured.
inline Status check_stream(const Optimizer& optim, void* stream) {
  if (ZERO_TRY(find_capture(optim, stream)) == 0) return Status();
  return unsupported(
      "the stream is being captured, and this call cannot be part of a graph: make it "
      "outside the capture");
}

}  // namespace zero::api
