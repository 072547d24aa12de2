// SPDX-License-Identifier: Apache-2.0
#include "step/background.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/os.h"
#include "step/tables.h"

namespace zero {
namespace {

using std::chrono::microseconds;

constexpr microseconds kInterruptible{50'000};

}  // namespace

/// What each owner must have stored before a parameter is up to date.
struct Background::Watch {
  struct Part {
    Stored* owner;
    uint64_t share;
  };
  std::vector<std::vector<Part>> parts;  // by parameter
  std::vector<bool> fetched;             // in no arena, so copied after all owners are done
  uint64_t addresses = 0;                // Optimizer::addresses at creation
  std::shared_ptr<Arena> tables;
  Stored* own = nullptr;

  bool stored(size_t param, uint64_t number) const {
    if (fetched[param]) return false;
    return std::ranges::all_of(parts[param], [number](const Part& part) {
      return std::atomic_ref(part.owner->number).load() == number &&
             std::atomic_ref(part.owner->share).load() <= part.share;
    });
  }
};

Result<std::unique_ptr<Background>> Background::create(Comm& comm) {
  std::unique_ptr<Background> made(new Background(comm));
  ZERO_TRY(made->thread_.start("the thread that finishes steps", [&self = *made] { self.work(); }));
  return Result<std::unique_ptr<Background>>(std::move(made));
}

Background::~Background() {
  (void)complete();
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_one();
  // Wait: the thread has nothing to do, and was told to leave.
  thread_.join();
}

Status Background::watch(const Optimizer& optim, const StepMemory& memory) {
  if (watch_ != nullptr && watch_->addresses == optim.addresses && watch_->tables == memory.tables)
    return Status();
  auto made = std::make_shared<Watch>();
  made->addresses = optim.addresses;
  made->tables = memory.tables;
  std::vector<Stored*> owners;
  for (int32_t place = 0; place < optim.places(); place++)
    owners.push_back(ZERO_TRY(stored_of(optim, memory, optim.rank_at(place))));
  made->own = owners[static_cast<size_t>(optim.place())];
  made->fetched.assign(optim.params.size(), false);
  for (const int64_t param : memory.foreign_data)
    made->fetched[static_cast<size_t>(param)] = optim.world() > 1;
  for (int64_t param = 0; param < optim.plan.params(); param++) {
    std::vector<Watch::Part>& parts = made->parts.emplace_back();
    for (const OwnedSegment& one : optim.plan.segments_of(param))
      parts.push_back(
          {owners[static_cast<size_t>(one.owner)], static_cast<uint64_t>(one.segment.share)});
  }
  const std::lock_guard lock(mutex_);
  watch_ = std::move(made);
  return Status();
}

void Background::begin(Call call, std::function<Status(Call&)> end) {
  call.go_to_background();
  {
    const std::lock_guard lock(mutex_);
    number_++;
    call_.emplace(std::move(call));
    end_ = std::move(end);
    running_ = true;
    // The order matters, because a thread that sees the new number must not see the progress of the
    // previous step.
    std::atomic_ref(watch_->own->share).store(UINT64_MAX);
    std::atomic_ref(watch_->own->number).store(number_);
  }
  wake_.notify_one();
}

void Background::tell(int64_t share) {
  std::atomic_ref(watch_->own->share).store(static_cast<uint64_t>(share));
}

Status Background::complete() {
  std::unique_lock lock(mutex_);
  while (running_) {
    // Wait: a slice; the end of the step: its exchanges have deadlines, and the rest is computed.
    done_.wait_for(lock, kInterruptible);
    heed_interrupt(lock);
  }
  return status_;
}

/// An interrupt breaks the comm, on which the thread waits.
void Background::heed_interrupt(std::unique_lock<std::mutex>& lock) {
  if (!running_) return;
  lock.unlock();
  comm_.heed_interrupt("the end of a step");
  lock.lock();
}

/// Always returns, because the exchanges of a step's end have deadlines.
Status Background::wait(size_t param) {
  std::unique_lock lock(mutex_);
  const uint64_t number = number_;
  const std::shared_ptr<const Watch> watch = watch_;
  // The shortest and the longest pause between two checks of the progress of the owners.
  constexpr microseconds kSoon{20}, kLate{500};
  microseconds pause = kSoon;
  while (running_ && number_ == number) {
    // Parameters that were registered later are not part of this step.
    if (param >= watch->parts.size() || watch->stored(param, number)) return Status();
    // Wait: a slice; the step's end has deadlines.
    done_.wait_for(lock, pause);
    heed_interrupt(lock);
    pause = std::min(2 * pause, kLate);
  }
  return number_ == number ? status_ : Status();
}

void Background::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // Wait: the thread has nothing to do; the destructor ends it.
    wake_.wait(lock, [this] { return running_ || leaving_; });
    if (!running_) return;
    std::optional<Call> call = std::move(call_);
    const std::function<Status(Call&)> end = std::move(end_);
    lock.unlock();
    Status status;
    try {
      status = end(*call);
    } catch (const std::bad_alloc&) {
      call->abort_out_of_memory();
      status = Status(ZERO_ERR_MEMORY, "out of memory");  // short enough to need no allocation
    }
    lock.lock();
    status_ = std::move(status);
    running_ = false;
    done_.notify_all();
    lock.unlock();
    // The thread leaves the call last, because a thread that finds the comm free may begin the end
    // of the next step. zero_join does so, and waits for nothing but the comm.
    call.reset();
    lock.lock();
  }
}

}  // namespace zero
