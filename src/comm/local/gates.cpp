// SPDX-License-Identifier: Apache-2.0
#include "comm/local/gates.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/checked.h"
#include "base/keep.h"
#include "base/text.h"

namespace zero::local {
namespace {

constexpr int kLookMs = 10;
constexpr int64_t kTryMs = 5'000;    // for a few words on a stream of their own
constexpr int64_t kEndMs = 10'000;   // for queued work that nothing blocks any more
constexpr uint32_t kGateMask = 0xF;  // of the word that shows a wait
static_assert(kGates < kGateMask);

uint32_t read(const uint32_t* word) {
  return std::atomic_ref(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
}

void write(uint32_t* word, uint32_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

}  // namespace

const char* name_of(Gate gate) {
  constexpr const char* kNames[kGates] = {"enter", "read", "measure", "publish"};
  return kNames[static_cast<size_t>(gate)];
}

size_t LocalGates::bytes_of(int32_t world) {
  const auto ranks = static_cast<size_t>(world);
  return round_up((kGates * ranks + 3) * ranks * sizeof(uint32_t),
                  static_cast<size_t>(os().getpagesize()));
}

Result<std::unique_ptr<LocalGates>> LocalGates::open(std::shared_ptr<Device> device,
                                                     Control& control,
                                                     std::shared_ptr<Mapping> words,
                                                     int64_t timeout_ms) {
  std::unique_ptr<LocalGates> gates(
      new LocalGates(std::move(device), control, std::move(words), timeout_ms));
  gates->opened_ =
      ZERO_TRY(open_host(gates->device_, gates->words_->data(), bytes_of(control.world())));
  gates->passed_ = ZERO_TRY(make_event(gates->device_));
  ZERO_TRY(gates->try_out());
  ZERO_TRY(gates->thread_.start("the thread that watches other ranks",
                                [&self = *gates] { self.watch(); }));
  return gates;
}

/// Tests a gate, because a driver may reject such operations, or accept them although the device
/// never completes them.
Status LocalGates::try_out() {
  const Stream stream = ZERO_TRY(make_stream(device_));
  const WordStep steps[] = {{WordStep::write, waits_word(), 1},
                            {WordStep::wait, waits_word(), 1},
                            {WordStep::write, waits_word(), 0}};
  ZERO_TRY(device_->words(stream.handle(), steps, "a trial gate"));
  any_passed_ = true;
  Status recorded = device_->record(passed_.handle(), stream.handle());
  if (!recorded.ok()) {  // record again, so that the destructor waits for the operations
    (void)device_->record(passed_.handle(), stream.handle());
    return recorded;
  }
  const int64_t limit_ms = std::min(timeout_ms_, kTryMs);
  Status made = await_trial(limit_ms);
  if (made.code() != ZERO_ERR_TIMEOUT) return made;
  write(waits_word(), 1);  // releases the stream; the device does not write this word
  const Status let_go = await_trial(kEndMs);
  any_passed_ = false;
  if (!let_go.ok()) abandon();
  return Status(ZERO_ERR_UNSUPPORTED, text("the device accepted writes and waits for words, but "
                                           "did not complete them within ",
                                           limit_ms, " ms"));
}

/// Waits for the gate, and reports progress, because the other ranks wait for this rank.
Status LocalGates::await_trial(int64_t limit_ms) {
  return await(*device_, passed_.handle(), limit_ms, "a trial gate", [this] {
    control_.note_progress();
    return Status();
  });
}

/// Waits until all queued work has passed the gates. Breaks the comm if this takes too long.
/// Returns false if the work never passes.
bool LocalGates::await_end() {
  const Status ended = await(*device_, passed_.handle(), timeout_ms_ + kEndMs, "the gates");
  if (ended.ok()) return true;
  if (!control_.aborted()) {
    control_.abort(kNoSteps.fail(ended.code(), control_.rank(), "gates", ended.text()));
  }
  return await(*device_, passed_.handle(), kEndMs, "the gates").ok();
}

/// Keeps everything that a stream that never ends may still use.
void LocalGates::abandon() {
  device_->give_up();
  keep_for_ever(words_);
  keep_for_ever(std::move(opened_));
  keep_for_ever(std::move(passed_));
}

/// Waits for queued work, which still uses the words. The watch continues meanwhile, so the work
/// ends in time.
LocalGates::~LocalGates() {
  if (any_passed_ && !succeeds([this] { return await_end(); })) abandon();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  // Wait: the watch looks every kLookMs, and a look waits for nothing.
  thread_.join();
}

Status LocalGates::pass(Gate gate, StreamHandle stream, const char* rule) {
  const auto at = static_cast<size_t>(gate);
  // For captured streams, the caller orders launches of the graph.
  const bool captured = ZERO_TRY(device_->capturing(stream)) != 0;
  if (any_passed_ && !captured) ZERO_TRY(device_->wait(stream, passed_.handle(), rule));
  std::vector<WordStep> steps;
  for (size_t r = 0; r < world(); r++)
    if (r != rank()) steps.push_back({WordStep::write, told(at, r, rank()), 1});
  const uint32_t wait = ++passes_ * (kGateMask + 1) | static_cast<uint32_t>(at + 1);
  steps.push_back({WordStep::write, waits_word(), wait});
  for (size_t r = 0; r < world(); r++)
    if (r != rank()) steps.push_back({WordStep::wait, told(at, rank(), r), 1});
  for (size_t r = 0; r < world(); r++)
    if (r != rank()) steps.push_back({WordStep::write, told(at, rank(), r), 0});
  steps.push_back({WordStep::write, passed_word(), 1});
  steps.push_back({WordStep::write, waits_word(), 0});
  ZERO_TRY(device_->words(stream, steps, rule));
  if (captured) return {};
  any_passed_ = true;
  return device_->record(passed_.handle(), stream);
}

// ---- The watch.

void LocalGates::watch() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    // Wait: a slice between two looks, until the gates end.
    wake_.wait_for(lock, std::chrono::milliseconds(kLookMs));
    lock.unlock();
    bool sound = false;
    const auto looks = [&] { return sound = look().ok(), true; };
    if (!succeeds(looks)) abort_without_memory();
    if (!sound) open_for_good();
    lock.lock();
  }
}

/// Aborts with words short enough to need no allocation.
void LocalGates::abort_without_memory() {
  control_.abort({ZERO_ERR_MEMORY, control_.rank(), 0, false, "gates", "out of memory"});
}

/// Fails if the comm is broken. Breaks it if a rank has died, or is missing for too long.
Status LocalGates::look() {
  const uint32_t wait = read(waits_word());
  const size_t gate = (wait & kGateMask) - 1;
  const Patience where{"a gate", wait == 0 ? "none" : name_of(static_cast<Gate>(gate)), timeout_ms_,
                       false};
  ZERO_TRY(control_.check(where));
  const int32_t missing = wait == 0 ? -1 : find_missing(gate);
  const bool passed = std::atomic_ref(*passed_word()).exchange(0) != 0;
  if (passed || missing < 0 || wait != wait_ || missing != missing_) {
    wait_ = wait;
    missing_ = missing;
    watch_.emplace(where);
    return {};
  }
  watch_->look();
  const Missing its_rank{missing, watch_->since_ns(0)};
  if (watch_->late_of({&its_rank, 1}).empty()) return {};
  Failure late = control_.make_failure(ZERO_ERR_TIMEOUT, missing, where,
                                       watch_->late(text("rank ", missing, "'s device")));
  late.params_consistent = false;  // the device may be in the middle of a step
  control_.abort(late);
  return control_.failure_status();
}

/// Returns the lowest rank that has not arrived at a gate where this rank waits, or -1.
int32_t LocalGates::find_missing(size_t gate) const {
  for (size_t r = 0; r < world(); r++)
    if (r != rank() && read(told(gate, rank(), r)) == 0) return static_cast<int32_t>(r);
  return -1;
}

/// Opens this rank's gates. The watch repeats this, because streams clear the words when they
/// arrive at further gates.
void LocalGates::open_for_good() {
  write(broken_word(), 1);
  for (size_t gate = 0; gate < kGates; gate++)
    for (size_t r = 0; r < world(); r++) write(told(gate, rank(), r), 1);
}

// ---- Gates on the host.

Result<std::unique_ptr<HostMeeting>> HostMeeting::open(const char* what,
                                                       std::shared_ptr<Device> device,
                                                       Control& control, int64_t timeout_ms,
                                                       std::atomic<int64_t>& waits) {
  std::unique_ptr<HostMeeting> meeting(
      new HostMeeting(what, std::move(device), control, timeout_ms, waits));
  meeting->behind_ = ZERO_TRY(make_stream(meeting->device_));
  meeting->held_ = ZERO_TRY(make_event(meeting->device_));
  meeting->done_ = ZERO_TRY(make_event(meeting->device_));
  return meeting;
}

Status HostMeeting::meet(StreamHandle stream, const char* phase, const char* rule) {
  const Patience where{what_, phase, timeout_ms_, false};
  ZERO_TRY(device_->record(held_.handle(), stream));
  ZERO_TRY(device_->wait(behind_.handle(), held_.handle(), rule));
  ZERO_TRY(device_->record(done_.handle(), behind_.handle()));
  ++waits_;
  // The limit is doubled, so that ranks that wait for this rank's device report it first.
  ZERO_TRY(await(*device_, done_.handle(), 2 * timeout_ms_,
                 text("the work before ", what_, " (", phase, ")"), [&] { return look(where); }));
  return control_.exchange({}, {}, where);
}

/// Fails if a rank has died, which this rank's device would not show. Checks rarely, because each
/// check costs a system call for each process.
Status HostMeeting::look(const Patience& where) {
  if (control_.aborted()) return control_.failure_status();
  const int64_t now = now_ns();
  if (now - looked_ns_ < kLookMs * 1'000'000) return {};
  looked_ns_ = now;
  return control_.check(where);
}

}  // namespace zero::local
