// SPDX-License-Identifier: Apache-2.0
#include "support/chaos_device.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/text.h"
#include "support/chaos_world.h"

namespace zero::test {
namespace {

ino_t inode_of(int fd) {
  struct stat about {};
  return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

thread_local int current_device = -1;

}  // namespace

ChaosDevice::ChaosDevice(std::shared_ptr<ChaosWorld> world, int32_t ordinal)
    : world_(std::move(world)), ordinal_(ordinal) {
  const std::lock_guard lock(world_->mutex_);
  default_queue_ = world_->add_queue(this, ordinal);
}

ChaosDevice::~ChaosDevice() {
  const std::lock_guard lock(world_->mutex_);
  world_->settle(this);
  std::erase_if(world_->queues_, [&](const auto& queue) { return queue->device == this; });
}

void ChaosDevice::fail(Status failure) {
  const std::lock_guard lock(world_->mutex_);
  failure_ = std::move(failure);
}

void ChaosDevice::begin_range(const char* name) noexcept {
  const std::lock_guard lock(world_->mutex_);
  ranges_ += ranges_.ends_with(')') ? " " : "";
  ranges_ += text(name, '(');
}

void ChaosDevice::end_range() noexcept {
  const std::lock_guard lock(world_->mutex_);
  ranges_ += ')';
}

std::string ChaosDevice::take_ranges() {
  const std::lock_guard lock(world_->mutex_);
  return std::exchange(ranges_, {});
}

void ChaosDevice::fail_once(int64_t call, Status failure) {
  const std::lock_guard lock(world_->mutex_);
  failing_call_ = calls_ + call;
  failing_ = std::move(failure);
}

void ChaosDevice::refuse_shared(Status failure) {
  const std::lock_guard lock(world_->mutex_);
  shared_failure_ = std::move(failure);
}

Status ChaosDevice::refusal() const {
  if (calls_++ == failing_call_) return failing_;
  return failure_;
}

Status ChaosDevice::copy(StreamHandle stream, void* to, const void* from, size_t bytes) {
  std::unique_lock lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  if (queue.graph != nullptr) ZERO_TRY(check_captured_copy(queue, to, from));
  const auto read = [&](const std::function<void(const void*)>& body) -> std::function<void()> {
    if (world_->opened(from)) return [=] { body(from); };
    const auto* const start = static_cast<const std::byte*>(from);
    auto staged = std::make_shared<std::vector<std::byte>>(start, start + bytes);
    return [=] { body(staged->data()); };
  };
  world_->queue(queue, ChaosWorld::Step::of(
                           text("copy of ", bytes, " bytes"),
                           read([=](const void* source) {  // may be called with no bytes and null
                             std::copy_n(static_cast<const std::byte*>(source), bytes,
                                         static_cast<std::byte*>(to));
                           })));
  if (world_->opened(to)) return {};
  const auto point = std::make_shared<ChaosWorld::Point>();
  world_->queue(queue, {"the end of a copy to the host", {}, nullptr, point});
  return await_point(lock, *point);
}

Status ChaosDevice::fill(StreamHandle stream, void* to, int byte, size_t bytes) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  world_->queue(queue, ChaosWorld::Step::of(text("fill of ", bytes, " bytes"),
                                            [=] { std::memset(to, byte, bytes); }));
  return {};
}

Status ChaosDevice::launch(StreamHandle stream, const Launch& launch) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  if (!world_->options_.emulate)
    return {ZERO_ERR_UNSUPPORTED, "this chaos world was made without an emulation of launches"};
  world_->queue(queue, ChaosWorld::Step::of(text("launch ", launch.index()),
                                            [this, launch] { world_->options_.emulate(launch); }));
  return {};
}

Status ChaosDevice::record(EventHandle event, StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  EventState& state = *ZERO_TRY(event_of(event));
  const auto point = std::make_shared<ChaosWorld::Point>();
  point->event = state.number;
  if (queue.graph != nullptr) point->graph = queue.graph->number;
  state.last = point;
  world_->queue(queue, {text("record of event ", state.number), {}, nullptr, point});
  return {};
}

Status ChaosDevice::wait(StreamHandle stream, EventHandle event, const char* rule) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  const EventState& state = *ZERO_TRY(event_of(event));
  ++world_->waits_[rule];
  if (world_->forgotten_.count(rule) != 0) return {};
  if (queue.graph != nullptr || (state.last != nullptr && state.last->graph != 0))
    ZERO_TRY(check_captured_wait(queue, state));
  if (state.last == nullptr) return {};
  world_->queue(queue,
                {text("wait for event ", state.number, ", rule '", rule, "'"), {}, state.last, {}});
  return {};
}

Status ChaosDevice::words(StreamHandle stream, std::span<const WordStep> steps, const char* rule) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  if (!world_->options_.words) return {ZERO_ERR_UNSUPPORTED, "chaos streams wait for no words"};
  ++world_->waits_[rule];
  for (const WordStep& step : steps) {
    std::atomic_ref<uint32_t> word(*step.word);
    if (step.kind == WordStep::write) {
      world_->queue(queue,
                    ChaosWorld::Step::of(text("write of ", step.value),
                                         [step, word, writes = world_->options_.writes_words] {
                                           if (writes) word.store(step.value);
                                         }));
    } else if (world_->forgotten_.count(rule) == 0) {
      const ChaosWork waits{[step, word] { return word.load() >= step.value; }, {}};
      world_->queue(queue, {text("wait for ", step.value, ", rule '", rule, "'"),
                            [waits] { return waits; },
                            {},
                            {}});
    }
  }
  return {};
}

Result<bool> ChaosDevice::done(EventHandle event) {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  const EventState& state = *ZERO_TRY(event_of(event));
  if (state.last == nullptr) return true;
  if (state.last->graph != 0)
    return refuse_captured(state.last->graph, "asking for an event of it");
  world_->run_some(*state.last);
  if (!state.last->passed) ZERO_TRY(world_->note_standstill());
  return state.last->passed;
}

Status ChaosDevice::check(const void* data, size_t bytes, std::string_view what) {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  if (bytes == 0) return {};
  if (data == nullptr) return {ZERO_ERR_ARGUMENT, text(what, " is NULL")};
  const auto* const block = world_->block_of(data);
  if (block == nullptr) {
    return {ZERO_ERR_ARGUMENT,
            text(what, " is host memory, not memory of chaos ", ordinal_, ": allocate it there")};
  }
  const int32_t owner = block->second.ordinal;
  if (owner != ChaosWorld::kHost && owner != ordinal_)
    return {ZERO_ERR_ARGUMENT, text(what, " is memory of chaos ", owner, ", not of ", ordinal_)};
  const size_t room = block->first + block->second.bytes - reinterpret_cast<uintptr_t>(data);
  if (bytes <= room) return {};
  return {ZERO_ERR_ARGUMENT,
          text(what, " has ", bytes, " bytes, but its memory ends after ", room)};
}

Status ChaosDevice::check_stream(StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  return queue_of(stream).status();
}

Result<uint64_t> ChaosDevice::number_of(StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  return ZERO_TRY(queue_of(stream))->number;
}

int ChaosDevice::current() { return current_device; }

Status ChaosDevice::run_current(const std::function<Status()>& body) {
  const int before = std::exchange(current_device, ordinal_);
  Status status = body();
  current_device = before;
  return status;
}

Result<void*> ChaosDevice::add(size_t bytes, int32_t ordinal, std::string_view what,
                               size_t alignment) {
  constexpr size_t kMost = size_t{1} << 40;
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  if (bytes > kMost) {
    return Status(ZERO_ERR_MEMORY,
                  text("no memory for ", bytes, " bytes of ", what, " on chaos ", ordinal_));
  }
  return world_->add_block(bytes, ordinal, alignment);
}

Result<void*> ChaosDevice::allocate(size_t bytes, std::string_view what) {
  return add(bytes, ordinal_, what);
}

Result<void*> ChaosDevice::allocate_host(size_t bytes, std::string_view what) {
  return add(bytes, ChaosWorld::kHost, what);
}

Result<Fd> ChaosDevice::create_shared(size_t bytes, std::string_view what) {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  Fd fd(memfd_create("chaos", MFD_CLOEXEC));
  if (fd.valid() && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0) {
    created_.insert(inode_of(fd.get()));
    return fd;
  }
  return Status(ZERO_ERR_MEMORY, text("no memory for ", bytes, " bytes of ", what));
}

Result<void*> ChaosDevice::map_shared(int fd, size_t bytes, std::string_view what) {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  if (!world_->options_.reaches && created_.count(inode_of(fd)) == 0)
    return Status(ZERO_ERR_UNSUPPORTED, text("chaos ", ordinal_, " does not reach ", what));
  return world_->add_mapping(fd, bytes, ordinal_);
}

Result<void*> ChaosDevice::allocate_shared(size_t bytes, std::string_view what) {
  constexpr size_t kPage = 4096;
  ZERO_TRY(Status(shared_failure_));
  return add(bytes, ordinal_, what, kPage);
}

void ChaosDevice::unmap_shared(void* memory) noexcept {
  const std::lock_guard lock(world_->mutex_);
  if (world_->works(this)) ++world_->lost_under_work_;
  world_->remove_block(memory);
}

Result<void*> ChaosDevice::open_host(void* memory, size_t bytes) {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  ++world_->pages_.try_emplace(reinterpret_cast<uintptr_t>(memory), ChaosWorld::Pages{bytes, 0})
        .first->second.count;
  ++world_->living_;
  return memory;
}

void ChaosDevice::close_host(void* memory) noexcept {
  const std::lock_guard lock(world_->mutex_);
  if (world_->works(this)) ++world_->lost_under_work_;
  const auto found = world_->pages_.find(reinterpret_cast<uintptr_t>(memory));
  if (--found->second.count == 0) world_->pages_.erase(found);
  --world_->living_;
}

void ChaosDevice::remove(void* memory) {
  const std::lock_guard lock(world_->mutex_);
  if (world_->busy(this)) ++world_->released_under_work_;
  world_->settle(this);
  world_->remove_block(memory);
}

void ChaosDevice::release(void* memory) noexcept { remove(memory); }

void ChaosDevice::release_host(void* memory) noexcept { remove(memory); }

Result<void*> ChaosDevice::make_stream() {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  const std::shared_ptr<ChaosWorld::Queue> queue = world_->add_queue(this, ordinal_);
  streams_.emplace(queue->handle(), queue);
  ++world_->living_;
  return queue->handle();
}

void ChaosDevice::let_go(const std::shared_ptr<ChaosWorld::Queue>& queue) {
  queue->freed = true;
  if (queue->graph != nullptr) queue->graph->spoiled = true;
  if (queue->items.empty()) std::erase(world_->queues_, queue);
}

void ChaosDevice::free_stream(void* stream) noexcept {
  const std::lock_guard lock(world_->mutex_);
  const auto found = streams_.find(stream);
  let_go(found->second);
  streams_.erase(found);
  --world_->living_;
}

void ChaosDevice::replace_stream(void* stream) {
  const std::lock_guard lock(world_->mutex_);
  std::shared_ptr<ChaosWorld::Queue>& queue = streams_.at(stream);
  replaced_.push_back(queue);
  let_go(std::exchange(queue, world_->add_queue(this, ordinal_)));
}

Result<void*> ChaosDevice::make_event() {
  const std::lock_guard lock(world_->mutex_);
  ZERO_TRY(refusal());
  auto state = std::make_unique<EventState>(EventState{++world_->event_count_, nullptr});
  void* const handle = state.get();
  events_.emplace(handle, std::move(state));
  ++world_->living_;
  return handle;
}

void ChaosDevice::free_event(void* event) noexcept {
  const std::lock_guard lock(world_->mutex_);
  events_.erase(event);
  --world_->living_;
}

Result<ChaosWorld::Queue*> ChaosDevice::queue_of(StreamHandle stream) const {
  ZERO_TRY(refusal());
  if (stream == nullptr) return default_queue_.get();
  const auto found = streams_.find(stream);
  if (found != streams_.end()) return found->second.get();
  return Status(ZERO_ERR_ARGUMENT, text("that is no stream of chaos ", ordinal_));
}

Result<ChaosDevice::EventState*> ChaosDevice::event_of(EventHandle event) const {
  const auto found = events_.find(event);
  if (found != events_.end()) return found->second.get();
  return Status(ZERO_ERR_ARGUMENT, text("that is no event of chaos ", ordinal_));
}

Status ChaosDevice::await_point(std::unique_lock<std::mutex>& lock,
                                const ChaosWorld::Point& point) {
  while (!point.passed) {
    if (world_->run_one()) continue;
    ZERO_TRY(world_->note_standstill());
    lock.unlock();  // others may queue what this waits for
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  return {};
}

}  // namespace zero::test
