// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/channel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/apart.h"

namespace zero::nccl {
namespace {

constexpr int64_t kCloseMs = 2'000;
constexpr int64_t kLookMs = 10;

int final_outcome(const Library& library, Handle handle) {
  const Deadline deadline(kCloseMs / 2);
  int outcome = kInProgress;
  while (library.async_error(handle, &outcome) == kSuccess && outcome == kInProgress &&
         !deadline.passed())
    // Wait: a slice of half of kCloseMs.
    os().poll(nullptr, 0, 1);
  return outcome;
}

void end_communicator(const Library& library, Handle handle, bool broken) {
  const int finalized = broken ? kRemoteError : library.finalize(handle);
  const bool sound = (finalized == kSuccess || finalized == kInProgress) &&
                     final_outcome(library, handle) == kSuccess;
  if (sound)
    library.destroy(handle);
  else
    library.abort(handle);
}

bool end_on(Device& device, const Library& library, Handle handle, bool broken) {
  const auto end = [&] { return end_communicator(library, handle, broken), Status(); };
  // If the device is lost, its context cannot be entered, but the communicator must still be ended.
  if (!device.run_current(end).ok()) (void)end();
  return true;
}

Status still_busy(std::string_view what, const Bounds& bounds) {
  return Status(ZERO_ERR_TIMEOUT,
                text(what, ": NCCL was still busy after ", bounds.limit_ms, " ms"));
}

/// Makes a call on a separate thread, because it may block inside NCCL. Returns its result.
Result<int> call_apart(std::string_view what, const Bounds& bounds, std::shared_ptr<Device> device,
                       Handle handle, std::function<int(Handle)> call) {
  Apart<Result<int>> apart;
  ZERO_TRY(
      apart.start([device = std::move(device), handle, call = std::move(call)]() -> Result<int> {
        int made = kSuccess;
        ZERO_TRY(device->run_current([&] { return made = call(handle), Status(); }));
        return made;
      }));
  for (const Deadline deadline(bounds.limit_ms);;) {
    const int64_t slice_ms = std::min(deadline.left_ms(), kLookMs);
    if (std::optional<Result<int>> outcome = apart.await(slice_ms)) return std::move(*outcome);
    ZERO_TRY(bounds.check());
    if (deadline.passed()) return still_busy(what, bounds);
  }
}

Config config() {
  Config config;
  config.blocking = 0;
  config.split_share = 0;
  return config;
}

/// Limits the thread blocks of reductions. More than saturate the links only slow the backward.
Config reduces_by(const CommOptions& options) {
  Config wanted = config();
  wanted.max_ctas = options.reduce_ctas;
  return wanted;
}

Config gathers_by(const Library& library, const CommOptions& options) {
  Config wanted = config();
  if (library.has_windows() && !options.gathers_on_kernels) wanted.cta_policy = kZeroCtas;
  return wanted;
}

/// Returns `made` when it is ready. Ends it if it does not become ready.
Result<std::unique_ptr<Channel>> await_made(const Library& library, std::unique_ptr<Channel> made,
                                            std::string_view what, const Bounds& bounds) {
  Status ready = made->await_ready(what, bounds);
  if (ready.ok()) return made;
  (void)Channels(library, std::move(made), nullptr).end(true);
  return ready;
}

/// Returns a new communicator, or nullptr for a negative color.
Result<std::unique_ptr<Channel>> split_one(const Library& library, Channel& parent, int color,
                                           int rank, Config wanted, const Bounds& bounds) {
  Slot<Handle> slot;
  const auto channel_of = [&](Handle handle) {
    return std::make_unique<Channel>(library, parent.device(), handle);
  };
  // Everything except `library` is captured by value, because the call may outlast the wait for it.
  const Status split = parent.run(
      "ncclCommSplit", bounds,
      [&library, color = color < 0 ? kNoColor : color, rank, place = slot.place(), wanted](
          Handle handle) mutable { return library.split(handle, color, rank, place, &wanted); });
  if (!split.ok()) {
    // Another rank may fail after NCCL has created the communicator and before this rank sees it.
    const Handle made = slot.look();
    if (made != nullptr) (void)Channels(library, channel_of(made), nullptr).end(true);
    return split;
  }
  const Handle handle = slot.take();
  if (color < 0 || handle == nullptr) return std::unique_ptr<Channel>();
  return await_made(library, channel_of(handle), "ncclCommSplit", bounds);
}

/// Creates the communicator for gathers from the one for reductions.
Result<std::unique_ptr<Channels>> pair(const Library& library, std::unique_ptr<Channel> reduce,
                                       int rank, const CommOptions& options, const Bounds& bounds) {
  Result<std::unique_ptr<Channel>> gather =
      split_one(library, *reduce, 0, rank, gathers_by(library, options), bounds);
  auto channels = std::make_unique<Channels>(library, std::move(reduce),
                                             gather.ok() ? std::move(*gather) : nullptr);
  ZERO_TRY(std::move(gather).status());
  return channels;
}

}  // namespace

Status problem(const Library& library, Handle handle, std::string_view what, int outcome) {
  const char* const name = library.error_string(outcome);
  const char* const words = library.last_error(handle);
  const bool more = words != nullptr && words[0] != 0;
  return Status(outcome == kRemoteError ? ZERO_ERR_PEER_DEAD : ZERO_ERR_COMM,
                text(what, ": NCCL says '", name != nullptr ? name : "?", "' (", outcome, ")",
                     more ? ": " : "", more ? words : ""));
}

int Channel::poll(Handle handle) const {
  int outcome = kSuccess;
  const int asked = library_.async_error(handle, &outcome);
  return asked == kSuccess ? outcome : asked;
}

Status Channel::await_ready(std::string_view what, const Bounds& bounds) {
  return run(what, bounds, [&](Handle handle) { return poll(handle); });
}

Status Channel::run(std::string_view what, const Bounds& bounds,
                    const std::function<int(Handle)>& call) {
  return device_->run_current([&] { return run_here(what, bounds, call); });
}

Status Channel::run_here(std::string_view what, const Bounds& bounds,
                         const std::function<int(Handle)>& call) {
  const Deadline deadline(bounds.limit_ms);
  const int64_t start_ns = now_ns();
  for (bool first = true;; first = false) {
    {
      const std::unique_lock lock(mutex_, std::chrono::milliseconds(deadline.left_ms()));
      if (!lock.owns_lock()) return still_busy(what, bounds);
      if (handle_ == nullptr)
        return Status(ZERO_ERR_ABORTED, text(what, ": the communicator has ended"));
      int outcome = kSuccess;
      if (first && may_block_)
        outcome = ZERO_TRY(call_apart(what, bounds, device_, handle_, call));
      else
        outcome = first ? call(handle_) : poll(handle_);
      if (outcome != kSuccess && outcome != kInProgress)
        return problem(library_, handle_, what, outcome);
      // Success of the call itself means only that it has started.
      if (!first && outcome == kSuccess) break;
    }
    ZERO_TRY(bounds.check());
    if (deadline.passed()) return still_busy(what, bounds);
    // Wait: a slice of bounds.limit_ms.
    pause_between_looks(now_ns() - start_ns, usual_ns_, kLookMs * 1'000'000);
  }
  usual_ns_ = now_ns() - start_ns;
  return {};
}

bool Channel::run_alone(int64_t bound_ms, const std::function<int(Handle)>& call) {
  const auto run = [&] {
    return run_alone_here(bound_ms, call) ? Status() : Status(ZERO_ERR_TIMEOUT, {});
  };
  return device_->run_current(run).ok();
}

bool Channel::run_alone_here(int64_t bound_ms, const std::function<int(Handle)>& call) {
  for (const Deadline deadline(bound_ms);;) {
    {
      const std::unique_lock lock(mutex_, std::chrono::milliseconds(deadline.left_ms()));
      if (!lock.owns_lock()) return false;
      if (handle_ == nullptr) return true;
      if (poll(handle_) != kInProgress) return call(handle_) == kSuccess;
    }
    if (deadline.passed()) return false;
    // Wait: a slice of bound_ms.
    os().poll(nullptr, 0, 1);
  }
}

Status Channel::error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || handle_ == nullptr) return {};
  const int outcome = poll(handle_);
  if (outcome == kSuccess || outcome == kInProgress) return {};
  return problem(library_, handle_, "queued work", outcome);
}

Handle Channel::take(int64_t bound_ms) {
  const std::unique_lock lock(mutex_, std::chrono::milliseconds(bound_ms));
  if (!lock.owns_lock()) return nullptr;
  return std::exchange(handle_, nullptr);
}

bool Channels::end(bool broken) noexcept {
  bool all = true;
  const bool ended = succeeds([&] {
    // Wait: whoever came first is done after kCloseMs and the turns of two channels.
    std::call_once(ended_, [&] { all = end_both(broken); });
    return true;
  });
  if (!ended || !all)
    log(ZERO_LOG_WARNING, "NCCL did not destroy a communicator within 2 s: it is leaked");
  return ended && all;
}

bool Channels::end_both(bool broken) {
  std::array<Apart<bool>, 2> ends;
  size_t begun = 0, sound = 0;
  for (Channel* const channel : {reduce_.get(), gather_.get()}) {
    if (channel == nullptr) continue;
    ++begun;
    const Handle handle = channel->take(kCloseMs / 2);
    const auto end = [&library = library_, device = channel->device(), handle, broken] {
      return end_on(*device, library, handle, broken);
    };
    if (handle != nullptr && ends[sound].start(end).ok()) ++sound;
  }
  size_t ended = 0;
  for (const Deadline deadline(kCloseMs); ended < sound && !deadline.passed();)
    if (ends[ended].await(kLookMs)) ++ended;
  return ended == begun;
}

Result<std::unique_ptr<Channels>> split(const Library& library, Channel& parent, int color,
                                        int rank, const CommOptions& options,
                                        const Bounds& bounds) {
  std::unique_ptr<Channel> reduce =
      ZERO_TRY(split_one(library, parent, color, rank, reduces_by(options), bounds));
  if (reduce == nullptr) return std::unique_ptr<Channels>();
  return pair(library, std::move(reduce), rank, options, bounds);
}

Result<std::unique_ptr<Channels>> form(const Library& library,
                                       const std::shared_ptr<Device>& device, const UniqueId& id,
                                       int rank, int world, const CommOptions& options,
                                       const Bounds& bounds) {
  Slot<Handle> slot;
  Config wanted = reduces_by(options);
  ZERO_TRY(device->run_current([&]() -> Status {
    const int outcome = library.init_rank(slot.place(), world, id, rank, &wanted);
    if (outcome == kSuccess || outcome == kInProgress) return {};
    return problem(library, nullptr, "ncclCommInitRankConfig", outcome);
  }));
  std::unique_ptr<Channel> reduce =
      ZERO_TRY(await_made(library, std::make_unique<Channel>(library, device, slot.take()),
                          "ncclCommInitRankConfig", bounds));
  return pair(library, std::move(reduce), rank, options, bounds);
}

}  // namespace zero::nccl
