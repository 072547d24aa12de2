// SPDX-License-Identifier: Apache-2.0
#include "step/backward.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/os.h"
#include "base/refusals.h"
#include "optim/tensor_checks.h"
#include "step/pieces.h"
#include "step/tables.h"

namespace zero {
namespace {

using std::chrono::microseconds;

// The shortest and the longest pause between two checks for announcements of other ranks.
constexpr microseconds kSoon{50};
constexpr microseconds kLate{2000};

constexpr int64_t kUpdated = 65536;  // elements between two checks whether to stop

}  // namespace

Backward::~Backward() {
  pause();
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_one();
  // Wait: a tile at most, as in pause(), and it has been told to leave.
  thread_.join();
}

Status Backward::announce(int64_t param, std::byte* grad) {
  const auto index = static_cast<size_t>(param);
  const Param& of = optim_.params[index];
  const TensorName what{kGradientOf, of.name};
  if (announced(index)) return wrong_state(what, " is already announced: step or drop it first");
  ZERO_TRY(check_aligned(grad, of.grad_dtype, what));
  if (grad != of.grad) ZERO_TRY(check_tensor_memory(*optim_.comm, what, grad, of.grad_bytes()));
  announced_.resize(optim_.params.size());
  if (makes_ == Makes::nothing && optim_.phase != Phase::begun) ZERO_TRY(begin_sums());
  announced_[index] = {.is = true, .grad = grad};
  if (makes_ == Makes::nothing || of.count == 0) return Status();
  const Location at = location_of(grad, of.grad_bytes());
  const bool foreign = grad != nullptr && at.arena == 0;
  if (!foreign) publish(param, at);
  {
    const std::lock_guard lock(mutex_);
    if (foreign && memory_.staging != nullptr) to_stage_.push_back(param);
    running_ = true;
    stop_ = false;
  }
  wake_.notify_one();
  return Status();
}

/// Returns the location of a gradient for the other ranks. If they read no gradients, it only shows
/// that this rank has one.
Location Backward::location_of(const std::byte* grad, size_t bytes) const {
  if (grad == nullptr) return {};
  if (alone()) return {UINT32_MAX, 0, 0};
  return optim_.comm->locate(grad, bytes);
}

/// Begins a round of sums if gradients can be summed before the call.
Status Backward::begin_sums() {
  const bool can =
      optim_.comm->direct() && !optim_.on_device && optim_.world() > 1 && optim_.sealed();
  if (!can) return Status();
  const auto bytes = static_cast<size_t>(optim_.plan.end().sum_bytes);
  if (sums_.bytes() < bytes) {
    sums_ = ZERO_TRY(HostMemory::allocate(bytes, "gradients reduced during the backward pass"));
    drop_views(memory_);
  }
  norm_type_ = optim_.options.max_grad_norm > 0 ? optim_.options.grad_norm_type : 0;
  reducer_.emplace(kernels(), norm_type_);
  return expect(Makes::sums);
}

Status Backward::begin_updates(double factor) {
  updater_.emplace(optim_, memory_, factor);
  return expect(Makes::updates);
}

/// Begins a round in which all owned segments of trained parameters are pending.
Status Backward::expect(Makes makes) {
  if (!thread_.started())
    ZERO_TRY(thread_.start("the thread that works during the backward pass", [this] { work(); }));
  const std::vector<Segment>& segments = optim_.segments();
  done_.assign(segments.size(), 0);
  pending_.clear();
  for (size_t i = 0; i < segments.size(); i++) {
    if (optim_.trains(static_cast<size_t>(segments[i].param))) pending_.push_back(i);
  }
  makes_ = makes;
  return Status();
}

void Backward::publish(int64_t param, const Location& grad) {
  Ready& mine = *own_ready(optim_, memory_, param);
  std::atomic_ref(mine.arena).store(grad.arena, std::memory_order_relaxed);
  std::atomic_ref(mine.offset).store(grad.offset, std::memory_order_relaxed);
  std::atomic_ref(mine.round).store(memory_.round, std::memory_order_release);
}

void Backward::pause() {
  if (!thread_.started()) return;
  std::unique_lock lock(mutex_);
  stop_ = true;
  running_ = false;
  // Wait: a tile at most, as stop_ is set.
  idle_.wait(lock, [this] { return !busy_; });
  optim_.counters.moved_bytes += std::exchange(moved_bytes_, 0);
  optim_.counters.copied_bytes += std::exchange(copied_bytes_, 0);
}

void Backward::forget() {
  announced_.clear();
  to_stage_.clear();
  pending_.clear();
  done_.clear();
  reducer_.reset();
  updater_.reset();
  nonfinite_ = 0;
  held_.clear();
  makes_ = Makes::nothing;
}

void Backward::distrust() {
  pending_.clear();
  std::fill(done_.begin(), done_.end(), 0);
  if (reducer_) reducer_.emplace(kernels(), norm_type_);
}

void Backward::work() {
  std::unique_lock lock(mutex_);
  microseconds pause = kSoon;
  while (!leaving_) {
    if (!running_) {
      // Wait: the thread has nothing to do; the destructor ends it.
      wake_.wait(lock, [this] { return running_ || leaving_; });
      pause = kSoon;
      continue;
    }
    busy_ = true;
    lock.unlock();
    bool moved = false;
    try {
      moved = pass();
    } catch (const std::bad_alloc&) {  // the call does the rest
      pending_.clear();
    }
    lock.lock();
    busy_ = false;
    idle_.notify_all();
    pause = moved ? kSoon : std::min(2 * pause, kLate);
    if (pending_.empty() && to_stage_.empty()) {
      running_ = false;
    } else if (running_ && !moved) {
      // Wait: a slice between two looks, until a call takes what is done.
      wake_.wait_for(lock, pause);
    }
  }
}

/// Stages gradients and works on all pending segments once. Returns true if something was done.
bool Backward::pass() {
  if (optim_.comm->aborted()) {
    pending_.clear();
    return false;
  }
  bool moved = false;
  for (;;) {
    int64_t param = 0;
    {
      const std::lock_guard lock(mutex_);
      if (to_stage_.empty() || stopped()) break;
      param = to_stage_.front();
      to_stage_.pop_front();
    }
    stage(param);
    moved = true;
  }
  std::vector<size_t> left;
  for (const size_t segment : pending_) {
    const Outcome outcome = stopped() ? Outcome::waits : work_on(segment);
    if (outcome == Outcome::waits) left.push_back(segment);
    moved = moved || outcome == Outcome::done;
  }
  pending_ = std::move(left);
  return moved;
}

void Backward::stage(int64_t param) {
  const auto index = static_cast<size_t>(param);
  const size_t bytes = optim_.params[index].grad_bytes();
  const Location place = staging_of(optim_, memory_, param);
  std::memcpy(memory_.staging->data() + place.offset, announced_[index].grad, bytes);
  copied_bytes_ += static_cast<int64_t>(bytes);
  announced_[index].staged = true;
  publish(param, place);
}

/// Sums or updates a segment if every rank has announced its gradient. Returns early if stopped.
Backward::Outcome Backward::work_on(size_t number) {
  const Segment& segment = optim_.segments()[number];
  const Outcome found = find(segment);
  if (found != Outcome::done) return found;
  if (makes_ == Makes::sums) {
    sum(number, optim_.plan.section(segment.section));
  } else {
    const bool absent =
        std::ranges::all_of(in_, [](const std::byte* from) { return from == nullptr; });
    if (absent) return Outcome::done;
    update(number);
  }
  return done_[number] == segment.count ? Outcome::done : Outcome::waits;
}

/// Sets in_ to the addresses of the gradients of a segment if all ranks have announced them. The
/// address is null for a rank that has none.
Backward::Outcome Backward::find(const Segment& segment) {
  const size_t element = size_of(optim_.plan.section(segment.section).grad_dtype);
  const size_t offset = static_cast<size_t>(segment.first) * element;
  in_.clear();
  held_.clear();
  bool anywhere = false;
  for (int32_t rank = 0; rank < optim_.world(); rank++) {
    Result<Ready> ready = ready_on(optim_, memory_, rank, segment.param);
    if (!ready.ok()) return Outcome::never;
    if (ready->round != memory_.round) return Outcome::waits;
    anywhere = anywhere || ready->arena != 0;
    if (alone()) continue;
    in_.push_back(nullptr);
    if (ready->arena == 0) continue;
    const Location at = {static_cast<uint32_t>(ready->arena), 0, ready->offset + offset};
    held_.push_back(optim_.comm->arena(at));
    if (held_.back() != nullptr && held_.back()->one_copy())
      return Outcome::never;  // other ranks' gradients may overlap it, which the call checks
    const auto from = optim_.comm->resolve(rank, at, static_cast<size_t>(segment.count) * element);
    if (!from.ok()) return Outcome::never;
    in_.back() = *from;
  }
  if (alone()) {
    const std::byte* const own = grad(static_cast<size_t>(segment.param));
    if (anywhere && own == nullptr) return Outcome::never;  // the call handles zeros
    in_.push_back(own == nullptr ? nullptr : own + offset);
  }
  return Outcome::done;
}

void Backward::sum(size_t number, const Section& section) {
  const Segment& segment = optim_.segments()[number];
  const size_t element = size_of(section.grad_dtype);
  std::vector<const void*> in(in_.size());
  std::byte* const sums = sums_.data() + section.sum_at(segment.share);
  int64_t& done = done_[number];
  for_each_piece(optim_.plan, segment, [&](int64_t first, int64_t count) {
    if (first < done || stopped()) return;
    for (size_t i = 0; i < in.size(); i++) {
      in[i] = in_[i] == nullptr ? kZeros : in_[i] + static_cast<size_t>(first) * element;
    }
    reducer_->reduce(section.sum(), section.grad_dtype, sums + size_of(section.sum(), first), in,
                     static_cast<size_t>(count), optim_.rounding_of(section));
    done = first + count;
    elements_.fetch_add(count, std::memory_order_release);
    moved_bytes_ += count * static_cast<int64_t>(in.size() * element + size_of(section.sum()));
  });
}

void Backward::update(size_t number) {
  const Segment& segment = optim_.segments()[number];
  int64_t& done = done_[number];
  os().reached("early.update");
  while (done < segment.count && !stopped() && !optim_.comm->aborted()) {
    const int64_t last = std::min(segment.count, done + kUpdated);
    nonfinite_ += updater_->update(number, in_, done, last);
    elements_.fetch_add(last - done, std::memory_order_release);
    updates_.fetch_add(last - done, std::memory_order_release);
    moved_bytes_ += (last - done) * updater_->moved_bytes(optim_.plan.section(segment.section));
    done = last;
  }
  os().reached("early.updated");
}

Status grad_ready(Optimizer& optim, int64_t param, std::byte* grad) {
  ZERO_TRY(optim.check_param(param));
  if (optim.phase == Phase::reduced) return optim.check_open();
  if (!optim.trains(static_cast<size_t>(param))) return Status();
  StepMemory& memory = step_memory(optim);
  if (memory.backward == nullptr) memory.backward = std::make_unique<Backward>(optim, memory);
  Backward& backward = *memory.backward;
  // No rank updates anything before this rank has announced a gradient.
  const bool first = backward.updates_here() && !backward.announced();
  if (first) optim.comm->steps.publishing++;
  const Status status = backward.announce(param, grad);
  if (first && !backward.announced()) optim.comm->steps.publishing--;
  ZERO_TRY(status);
  if (optim.phase == Phase::open) optim.phase = Phase::reducing;
  return Status();
}

const Backward* backward_of(const Optimizer& optim) {
  const auto* const memory = static_cast<const StepMemory*>(optim.step_memory.get());
  return memory == nullptr ? nullptr : memory->backward.get();
}

void give_up_begun(Optimizer& optim, StepMemory& memory) {
  if (updates_announced(memory)) optim.comm->steps.publishing--;
  optim.phase = Phase::open;
  end_round(memory);
}

void end_round(StepMemory& memory) {
  memory.round++;
  if (memory.backward != nullptr) memory.backward->forget();
}

}  // namespace zero
